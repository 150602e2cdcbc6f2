from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayFile, StrayReason
from mqstore.storage.paths import segment_name
from mqstore.storage.seams import Seams
from mqstore.storage.system.threads import production_seams
from tests.simulation import Loss, PowerCut, SimulatedMachine

SIZE = 8192


def queue_in(
    root: Path,
    seams: Seams | None = None,
    *,
    writable: bool = True,
    derived: bool = False,
    file_size: int = SIZE,
) -> MappedFileQueue:
    return MappedFileQueue(
        root / "log",
        file_size,
        seams or production_seams(),
        staging=root / "staging",
        writable=writable,
        derived=derived,
    )


@pytest.fixture
def queue(tmp_path: Path) -> MappedFileQueue:
    return queue_in(tmp_path)


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(seed=1)


def fill(queue: MappedFileQueue, files: int) -> None:
    for _ in range(files):
        mapped = queue.add(queue.files[-1].end_offset if queue.files else 0)
        mapped.view[:] = bytes([mapped.base_offset // SIZE + 1]) * SIZE
        mapped.wrote_position = SIZE


def bases(queue: MappedFileQueue) -> list[int]:
    return [mapped.base_offset for mapped in queue.files]


def log_names(queue: MappedFileQueue) -> list[str]:
    return sorted(path.name for path in queue.directory.iterdir())


def test_an_empty_queue_is_empty(queue: MappedFileQueue) -> None:
    assert queue.load() == []
    assert queue.first is queue.last is queue.find(0) is None
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (0, 0, 0)
    assert not queue.flush()
    queue.populate()
    assert not queue.directory.exists()


def test_added_files_have_their_offset_as_name(queue: MappedFileQueue) -> None:
    fill(queue, 2)
    assert log_names(queue) == ["00000000000000000000", "00000000000000008192"]
    assert (queue.min_offset, queue.max_offset) == (0, 2 * SIZE)
    assert list((queue.directory.parent / "staging").iterdir()) == []


def test_a_file_counts_only_once_appended(queue: MappedFileQueue) -> None:
    fill(queue, 1)
    spare = queue.create(SIZE)
    assert bases(queue) == [0]
    assert len(log_names(queue)) == 2
    queue.append(spare)
    assert bases(queue) == [0, SIZE]
    with pytest.raises(ValueError, match="does not come after"):
        queue.append(spare)


def test_order_of_a_new_file_is_staged_synced_renamed_directory_synced(
    machine: SimulatedMachine,
) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    queue.add(0)
    steps = [line.split()[0] for line in machine.disk.trace]
    made = [step for step in steps if step not in ("stat", "make_directory", "sync_directory")]
    assert made == ["create", "sync", "rename", "map"]
    assert steps[-2:] == ["sync_directory", "map"]


def test_loading_finds_what_was_written(queue: MappedFileQueue) -> None:
    fill(queue, 3)
    queue.close()
    assert bases(queue) == []
    assert queue.load() == []
    assert bases(queue) == [0, SIZE, 2 * SIZE]
    assert queue.max_offset == 3 * SIZE
    assert queue.flushed_where == 0
    assert bytes(queue.files[1].view[:3]) == b"\2\2\2"


def test_strays_are_reported_and_left_alone(queue: MappedFileQueue) -> None:
    fill(queue, 2)
    queue.close()
    directory = queue.directory
    contents = {
        "notes.txt": b"mine",
        segment_name(2 * SIZE): b"short",
        segment_name(5 * SIZE): bytes(SIZE + 1),
        segment_name(SIZE + 1): bytes(SIZE),
        "9" * 20: bytes(SIZE),
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    (directory / segment_name(7 * SIZE)).mkdir()
    strays = {stray.path.name: stray for stray in queue.load()}
    assert bases(queue) == [0, SIZE]
    assert strays[segment_name(2 * SIZE)] == StrayFile(
        directory / segment_name(2 * SIZE), 5, StrayReason.LENGTH, 2 * SIZE
    )
    assert strays[segment_name(5 * SIZE)].reason is StrayReason.LENGTH
    assert strays[segment_name(SIZE + 1)].reason is StrayReason.OVERLAP
    assert strays["notes.txt"].reason is StrayReason.NAME
    assert strays["9" * 20].reason is StrayReason.NAME
    assert strays[segment_name(7 * SIZE)].base_offset is None
    assert all((directory / name).read_bytes() == content for name, content in contents.items())


def test_find_crosses_holes(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    for base in (2, 3, 6, 8):
        queue.add(base * SIZE)
    found = [index for index in range(10) if queue.find(index * SIZE + 1)]
    assert found == [2, 3, 6, 8]
    assert queue.find(-1) is None


@given(st.sets(st.integers(0, 40), max_size=12), st.integers(0, 100 * 42))
def test_find_agrees_with_looking_at_every_file(indexes: set[int], offset: int) -> None:
    machine = SimulatedMachine(seed=0)
    queue = queue_in(Path("/store"), machine.seams, file_size=100)
    for index in sorted(indexes):
        queue.add(index * 100)
    holders = [f for f in queue.files if f.base_offset <= offset < f.end_offset]
    assert queue.find(offset) is (holders[0] if holders else None)


def test_flush_syncs_the_old_tail_before_the_new_file(machine: SimulatedMachine) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    fill(queue, 1)
    queue.add(SIZE).wrote_position = 100
    before = len(machine.disk.trace)
    assert queue.flush()
    assert machine.disk.trace[before:] == [
        f"sync /store/log/{segment_name(0)}",
        f"sync /store/log/{segment_name(SIZE)}",
    ]
    assert queue.flushed_where == SIZE + 100
    assert not queue.flush()


def test_what_is_flushed_survives_a_power_cut(machine: SimulatedMachine) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    fill(queue, 2)
    queue.flush()
    after = queue_in(Path("/store"), machine.restart(machine.disk.power_cut(3, Loss.DROP)).seams)
    assert after.load() == []
    assert [bytes(mapped.view) for mapped in after.files] == [b"\1" * SIZE, b"\2" * SIZE]


def test_a_failed_sync_stops_the_flushed_position_before_it(machine: SimulatedMachine) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    fill(queue, 3)
    number = len(machine.disk.trace) + 1
    machine.disk.fail_at(number, errno.EIO)
    for _ in range(2):
        with pytest.raises(StoreFailed, match=segment_name(SIZE)):
            queue.flush()
        assert queue.flushed_where == SIZE


def test_a_file_that_a_failing_disk_left_behind_is_made_anew(machine: SimulatedMachine) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    fill(queue, 1)
    machine.disk.fail_next("sync_directory", errno.EIO)
    machine.disk.fail_next("unlink", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        queue.add(SIZE)
    assert machine.disk.list(Path("/store/log")) == [segment_name(0), segment_name(SIZE)]
    queue.add(SIZE)
    assert bases(queue) == [0, SIZE]


def test_a_flush_may_wait_for_whole_pages(queue: MappedFileQueue) -> None:
    mapped = queue.add(0)
    mapped.wrote_position = 4095
    assert not queue.flush(least_pages=1)
    mapped.wrote_position = 4096
    assert queue.flush(least_pages=1)
    mapped.wrote_position = 4097
    assert not queue.flush(least_pages=1)
    mapped.wrote_position = SIZE
    assert queue.flush(least_pages=4)
    assert queue.flushed_where == SIZE


def test_mark_flushed_is_believed_up_to_the_end(queue: MappedFileQueue) -> None:
    fill(queue, 2)
    queue.mark_flushed(SIZE + 10)
    assert [mapped.flushed_position for mapped in queue.files] == [SIZE, 10]
    assert queue.flushed_where == SIZE + 10
    queue.mark_flushed(5 * SIZE)
    assert queue.flushed_where == 2 * SIZE


def test_remove_from_moves_the_end_and_keeps_the_bytes(queue: MappedFileQueue) -> None:
    fill(queue, 3)
    queue.flush()
    queue.remove_from(SIZE + 100)
    assert bases(queue) == [0, SIZE]
    assert (queue.max_offset, queue.flushed_where) == (SIZE + 100, SIZE + 100)
    assert (queue.directory / segment_name(SIZE)).read_bytes() == b"\2" * SIZE
    queue.remove_from(SIZE)
    assert bases(queue) == [0]
    assert queue.max_offset == SIZE
    queue.remove_from(0)
    assert log_names(queue) == []


@pytest.mark.parametrize("from_the_front", [True, False])
def test_removal_cut_short_by_a_power_cut_leaves_no_hole(from_the_front: bool) -> None:
    for cut_after in range(12):
        machine = SimulatedMachine(seed=cut_after)
        queue = queue_in(Path("/store"), machine.seams)
        fill(queue, 4)
        machine.disk.cut_at(len(machine.disk.trace) + cut_after)
        with suppress(PowerCut):
            queue.remove_first(3) if from_the_front else queue.remove_from(SIZE)
        after = machine.restart(machine.disk.power_cut(cut_after))
        left = queue_in(Path("/store"), after.seams)
        left.load()
        indexes = [base // SIZE for base in bases(left)]
        assert indexes == list(range(indexes[0], indexes[-1] + 1))
        assert (3 if from_the_front else 0) in indexes


def test_remove_first_stops_at_what_is_held(machine: SimulatedMachine) -> None:
    queue = queue_in(Path("/store"), machine.seams)
    fill(queue, 4)
    with queue.files[1].hold():
        assert queue.remove_first(3, force_after_s=120) == 1
        machine.clock.advance(119)
        assert queue.remove_first(2, force_after_s=120) == 0
        machine.clock.advance(1)
        assert queue.remove_first(2, force_after_s=120) == 2
    assert bases(queue) == [3 * SIZE]
    assert queue.min_offset == 3 * SIZE


def test_who_walks_the_files_is_not_disturbed_by_removal(queue: MappedFileQueue) -> None:
    fill(queue, 3)
    walked = []
    for mapped in queue.files:
        queue.remove_first(1)
        walked.append(bytes(mapped.view[:1]))
    assert walked == [b"\1", b"\2", b"\3"]


def test_readers_notice_new_and_removed_files(tmp_path: Path) -> None:
    writer, reader = queue_in(tmp_path), queue_in(tmp_path, writable=False)
    fill(writer, 2)
    reader.load()
    assert not reader.refresh()
    kept = reader.files[1]
    fill(writer, 1)
    writer.remove_first(1)
    assert reader.refresh()
    assert bases(reader) == [SIZE, 2 * SIZE]
    assert reader.files[0] is kept
    assert kept.view.readonly


def test_readers_map_afresh_what_a_recovery_made_again(tmp_path: Path) -> None:
    writer, reader = queue_in(tmp_path), queue_in(tmp_path, writable=False)
    fill(writer, 1)
    reader.load()
    old = reader.files[0]
    writer.remove_from(0)
    writer.add(0).view[0] = 9
    assert not reader.refresh()
    assert reader.refresh(remap=True)
    assert (old.view[0], reader.files[0].view[0]) == (1, 9)


def test_readers_keep_no_descriptors(tmp_path: Path) -> None:
    writer, reader = queue_in(tmp_path), queue_in(tmp_path, writable=False)
    fill(writer, 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader.load()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    writer.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 3


def test_files_not_reserved_whole_begin_with_a_page(tmp_path: Path) -> None:
    queue = queue_in(tmp_path, derived=True, file_size=4 * PAGE_SIZE)
    assert queue.populate_window == 0
    mapped = queue.add(0)
    assert mapped.path.stat().st_blocks * 512 == PAGE_SIZE


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_is_inserted_in_its_place(tmp_path: Path, missing: int) -> None:
    fill(queue_in(tmp_path, derived=True), 4)
    (tmp_path / "log" / segment_name(missing * SIZE)).unlink()
    queue = queue_in(tmp_path, derived=True)
    queue.load()
    queue.mark_flushed(4 * SIZE)

    queue.insert(missing * SIZE)

    assert bases(queue) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert queue.flushed_where == missing * SIZE
    assert queue.names_due
    assert queue.flush()
    assert queue.flushed_where == 4 * SIZE
    assert queue.add(4 * SIZE) is queue.last


def test_adding_where_a_file_lies_is_refused(queue: MappedFileQueue) -> None:
    fill(queue, 1)
    (queue.directory / segment_name(SIZE)).write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        queue.add(SIZE)
    assert (queue.directory / segment_name(SIZE)).read_bytes() == b"precious"


def test_creating_for_two_directories_shares_one_staging(tmp_path: Path) -> None:
    seams = production_seams()
    made: list[MappedFile] = []
    for topic in ("a", "b"):
        directory = tmp_path / topic / "0"
        queue = MappedFileQueue(directory, SIZE, seams, staging=tmp_path / "staging")
        made.append(queue.add(0))
    assert [mapped.path.parent.parent.name for mapped in made] == ["a", "b"]
