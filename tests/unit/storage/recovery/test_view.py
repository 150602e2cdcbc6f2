from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.paths import segment_name
from mqstore.storage.recovery.loss import spans_of
from mqstore.storage.recovery.view import (
    CheckpointTimes,
    QueueFiles,
    find_segments,
    read_checkpoint,
)
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.unit.storage.recovery.log_builder import SEGMENT, START_MS, LogBuilder, view_of

FILES = PosixFileSystem()
PER_FILE = 5
FILE_SIZE = PER_FILE * 20


def queue_of(directory: Path, offsets: list[int], *, first_file: int = 0) -> QueueFiles:
    """A queue whose entries name these physical offsets (-1: a hole)."""
    directory.mkdir(parents=True, exist_ok=True)
    entries = b"".join(
        struct.pack(">qiq", 0, 0x7FFFFFFF, 0) if offset < 0 else struct.pack(">qiq", offset, 1, 0)
        for offset in offsets
    )
    for number in range(-(-len(entries) // FILE_SIZE)):
        data = entries[number * FILE_SIZE : (number + 1) * FILE_SIZE].ljust(FILE_SIZE, b"\0")
        (directory / segment_name((first_file + number) * FILE_SIZE)).write_bytes(data)
    return QueueFiles(FILES, directory, FILE_SIZE)


def test_entries_are_read_by_their_number(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, [10, 20, -1, 40, 50, 60], first_file=2)
    assert queue.first_index == 10
    assert [queue.entry(n) for n in (10, 12, 15, 16, 9, 99)] == [
        (10, 1),
        None,
        (60, 1),
        None,
        None,
        None,
    ]
    queue.close()


ranges = st.lists(st.integers(0, 310), max_size=20, unique=True).map(
    lambda ends: [*zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)]
)


@given(offsets=st.lists(st.integers(0, 300), max_size=17, unique=True).map(sorted), missing=ranges)
def test_the_entries_of_missing_ranges_are_found(
    offsets: list[int], missing: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    queue = queue_of(tmp_path_factory.mktemp("queue"), offsets)
    due = [queue.span(start, stop) for start, stop in missing]
    assert [*spans_of(queue, missing)] == [each for each in due if each is not None]
    queue.close()


def test_a_queue_is_searched_for_its_entries_and_not_for_each_missing_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(tmp_path, [*range(0, 12_000, 1_000)])
    searched: list[int] = []
    files: set[int] = set()
    search, used = queue._first_above, queue._used

    def note(physical: int) -> int | None:
        searched.append(physical)
        return search(physical)

    def note_file(number: int) -> int:
        files.add(number)
        return used(number)

    monkeypatch.setattr(queue, "_first_above", note)
    missing = [(start, start + 5) for start in range(0, 100_000, 10)]

    assert len([*spans_of(queue, missing)]) == 12
    assert len(searched) <= 4 * 12

    monkeypatch.setattr(queue, "_used", note_file)
    assert queue.first_beyond(10_999) == 11_000
    assert files == {2}, "files that were passed are not searched again"
    queue.close()


@given(
    offsets=st.lists(st.integers(0, 300), max_size=17, unique=True).map(sorted),
    beyond=st.integers(-1, 301),
)
def test_the_first_entry_beyond_an_offset_is_found(
    offsets: list[int], beyond: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    queue = queue_of(tmp_path_factory.mktemp("queue"), offsets)
    assert queue.first_beyond(beyond) == min((o for o in offsets if o > beyond), default=None)
    queue.close()


@given(
    blanks=st.integers(0, 7),
    offsets=st.lists(st.integers(0, 300), max_size=17, unique=True).map(sorted),
    holes=st.sets(st.integers(0, 16), max_size=5),
    beyond=st.integers(-1, 301),
    length=st.integers(0, 200),
)
def test_a_queue_that_begins_late_or_has_holes_is_searched_too(
    blanks: int,
    offsets: list[int],
    holes: set[int],
    beyond: int,
    length: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    named = {n: -1 if n in holes else offset for n, offset in enumerate(offsets)}
    queue = queue_of(tmp_path_factory.mktemp("queue"), [-1] * blanks + list(named.values()))
    there = {blanks + n: offset for n, offset in named.items() if offset >= 0}
    assert queue.first_beyond(beyond) == min(
        (offset for offset in there.values() if offset > beyond), default=None
    )
    assert [(each.number, each.offset) for each in queue.named_within(beyond, beyond + length)] == [
        (n, offset) for n, offset in there.items() if beyond <= offset < beyond + length
    ]
    queue.close()


def test_a_queue_file_that_is_unlinked_after_it_was_listed_counts_as_expired(
    tmp_path: Path,
) -> None:
    queue = queue_of(tmp_path, [10, 20, 30, 40, 50, 60, 70])
    (tmp_path / segment_name(0)).unlink()
    assert queue.first_beyond(-1) == 60
    assert queue.first_index == PER_FILE
    assert queue.entry(0) is None
    queue.close()


def test_a_queue_holds_what_its_files_hold_without_gaps(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, list(range(0, 120, 10)))
    assert queue.holds(0, 0, 0)
    assert queue.holds(0, 12, 0)
    assert not queue.holds(0, 13, 0)
    (tmp_path / segment_name(FILE_SIZE)).unlink()
    assert not QueueFiles(FILES, tmp_path, FILE_SIZE).holds(0, 12, 0)
    assert not QueueFiles(FILES, tmp_path / "absent", FILE_SIZE).holds(0, 1, 0)
    assert QueueFiles(FILES, tmp_path / "absent", FILE_SIZE).holds(0, 0, 0)


@pytest.mark.parametrize("min_offset", [49, 50, 60])
def test_a_queue_begins_later_than_noted_only_where_the_log_does(
    tmp_path: Path, min_offset: int
) -> None:
    """Its first entry is of the record at 50: none before it is in a log that begins there."""
    queue_of(tmp_path, list(range(0, 120, 10)))
    (tmp_path / segment_name(0)).unlink()
    queue = QueueFiles(FILES, tmp_path, FILE_SIZE)

    assert queue.holds(0, 12, min_offset) == (min_offset >= 50)
    assert queue.holds(5, 12, min_offset)
    assert not queue.holds(0, 4, min_offset), "entry 4 was of a record that is in the log"
    queue.close()


@pytest.mark.parametrize(("first", "holds"), [(0, False), (5, True)])
def test_a_queue_that_is_known_by_its_first_file_alone(
    tmp_path: Path, first: int, holds: bool
) -> None:
    (tmp_path / segment_name(FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    queue = QueueFiles(FILES, tmp_path, FILE_SIZE)

    assert queue.holds(first, 5, 1_000) == holds
    queue.close()


def test_segments_are_distinguished_from_strays_and_misfits(tmp_path: Path) -> None:
    paths = LogBuilder().fill(100).write(tmp_path)
    names = sorted(path.name for path in paths.commit_log.iterdir())
    (paths.commit_log / "notes.txt").write_text("mine")
    (paths.commit_log / "folder").mkdir()
    (paths.commit_log / names[1]).write_bytes(bytes(10))
    (paths.commit_log / names[-1]).write_bytes(bytes(20))
    found = find_segments(FILES, paths, SEGMENT)
    assert [segment.path.name for segment in found.usable] == [names[0], *names[2:]]
    assert [segment.path.name for segment in found.misfits] == [names[1]]
    assert [Path(stray).name for stray in found.strays] == ["folder", "notes.txt"]


def test_a_last_segment_that_is_too_long_is_a_misfit(tmp_path: Path) -> None:
    paths = LogBuilder().fill(10).write(tmp_path)
    (paths.commit_log / segment_name(SEGMENT)).write_bytes(bytes(SEGMENT + 1))
    found = find_segments(FILES, paths, SEGMENT)
    assert [segment.base for segment in found.misfits] == [SEGMENT]


def test_the_first_store_time_of_a_segment(tmp_path: Path) -> None:
    log = LogBuilder().fill(60)
    log.segments.append(bytearray(SEGMENT))
    view = view_of(log.write(tmp_path))
    times = [view.first_store_timestamp(segment) for segment in view.segments.usable]
    assert times[0] == START_MS
    assert times[-1] is None
    assert all(time is None or time >= START_MS for time in times)


def test_a_checkpoint_of_another_size_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(FILES, path) == CheckpointTimes()
    path.write_bytes(struct.pack(">3q", 1, 2, 3).ljust(4096, b"\0"))
    assert read_checkpoint(FILES, path) == CheckpointTimes(1, 2, 3)
    path.write_bytes(b"short")
    assert read_checkpoint(FILES, path) == CheckpointTimes()
