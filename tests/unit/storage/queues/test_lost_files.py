"""Files of a queue that are missing before or between others are made again from the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.layout import RECORD_FIXED_SIZE
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.lost_files import close_gaps
from mqstore.storage.queues.queue_entry import PRE_BLANK, Put, QueueEntry
from mqstore.storage.queues.queue_holes import GAP_MAX
from tests.unit.storage.queues.test_consume_queue import FILE_SIZE, filled, open_queue

COUNT = 45
"""Entries, in five files of ten."""


def left_without(root: Path, *lost: int) -> ConsumeQueue:
    """A queue that lost files, by number. Entry n names the record at n x 100."""
    filled(root, COUNT).flush()
    for number in lost:
        (root / "queue" / f"{number * FILE_SIZE:020d}").unlink()
    return open_queue(root)


def put_all(queue: ConsumeQueue, start: int = 0) -> list[Put]:
    """Put every entry from ``start`` on, as a recovery does that dispatches the log."""
    return [queue.put(index, index * 100, 100, index) for index in range(start, COUNT)]


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "queue").iterdir())}


@pytest.mark.parametrize("lost", [(0,), (0, 1), (2,), (1, 2, 3), (0, 2), (0, 1, 2, 3)])
def test_lost_files_are_made_again_with_the_bytes_they_had(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    filled(tmp_path / "whole", COUNT).flush()
    queue = left_without(tmp_path / "lost", *lost)

    puts = put_all(queue)

    assert [n // 10 for n, put in enumerate(puts) if put is Put.FILLED] == [
        n for n in lost for _ in range(10)
    ]
    assert (queue.first_index, queue.max_index) == (0, COUNT)
    assert queue.fill_holes() == 0
    assert queue.put(COUNT, COUNT * 100, 100, 0) is Put.APPENDED
    assert queue.truncate_after(COUNT * 100) == 1
    queue.flush()
    assert content(tmp_path / "lost") == content(tmp_path / "whole")


def test_what_is_made_again_is_on_disk_after_the_next_flush(tmp_path: Path) -> None:
    queue = left_without(tmp_path, 0, 2)
    put_all(queue)

    assert queue.flush()

    assert all(file.flushed_position == file.wrote_position for file in queue.files.files)
    assert not queue.may_be_dirty


def test_entries_before_the_first_record_of_the_log_are_blank(tmp_path: Path) -> None:
    """Those of a file are, as in a file that begins a queue."""
    queue = left_without(tmp_path, 0, 1)

    put_all(queue, start=13)

    assert queue.first_index == 10
    assert queue.fill_holes() == 3
    assert content(tmp_path)[f"{FILE_SIZE:020d}"][:60] == PRE_BLANK * 3


def test_files_whose_records_expired_are_not_made(tmp_path: Path) -> None:
    queue = left_without(tmp_path, 0, 1)

    assert set(put_all(queue, start=20)) == {Put.PRESENT}
    assert queue.fill_holes() == 0

    assert queue.first_index == 20


def test_a_gap_is_closed_although_the_log_has_none_of_its_records(tmp_path: Path) -> None:
    queue = left_without(tmp_path, 2, 3)

    assert queue.fill_holes() == 20

    assert [file.base_offset // FILE_SIZE for file in queue.files.files] == [0, 1, 2, 3, 4]
    assert {queue.entry(index) for index in range(19, 40)} == {QueueEntry(1_900, 100, 19)}


def test_closing_many_gaps_reads_each_entry_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the files between the gaps name no record."""
    count = 400
    filled(tmp_path, count).flush()
    for number in range(1, count // 10 - 1, 2):
        (tmp_path / "queue" / f"{number * FILE_SIZE:020d}").unlink()
    for number in range(2, count // 10 - 1, 2):
        (tmp_path / "queue" / f"{number * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    queue = open_queue(tmp_path)
    reads, read = 0, ConsumeQueue._read

    def counted(self: ConsumeQueue, index: int) -> QueueEntry | None:
        nonlocal reads
        reads += 1
        return read(self, index)

    monkeypatch.setattr(ConsumeQueue, "_read", counted)

    close_gaps(queue)

    assert [each.base_offset // FILE_SIZE for each in queue.files.files] == list(range(40))
    assert reads <= 2 * count


@pytest.mark.parametrize("room", [0, 1])
def test_a_lost_file_held_no_more_entries_than_the_log_has_room_for(
    tmp_path: Path, room: int
) -> None:
    """A queue offset before the first file that is damaged makes no files."""
    queue = open_queue(tmp_path)
    first = GAP_MAX + 500
    queue.put(first, 10 + (first - 2 + room) * RECORD_FIXED_SIZE, 100, 0)
    before = queue.first_index

    put = queue.put(1, 10, 100, 0)

    assert put is (Put.FILLED if room else Put.REFUSED)
    assert queue.first_index == (0 if room else before)


def test_a_record_behind_those_of_all_entries_makes_no_file_before_them(tmp_path: Path) -> None:
    queue = left_without(tmp_path, 0)

    assert queue.put(3, 10_000, 100, 0) is Put.REFUSED
    assert queue.put(-1, 100, 100, 0) is Put.REFUSED

    assert queue.first_index == 10


def test_a_gap_that_the_log_has_no_room_for_stays(tmp_path: Path) -> None:
    filled(tmp_path, 12).flush()
    far = 2**62 - 2**62 % FILE_SIZE
    file = (tmp_path / "queue" / f"{FILE_SIZE:020d}").read_bytes()
    (tmp_path / "queue" / f"{far:020d}").write_bytes(file)
    queue = open_queue(tmp_path)

    close_gaps(queue)

    assert len(queue.files.files) == 3
