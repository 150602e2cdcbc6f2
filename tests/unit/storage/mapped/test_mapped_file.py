from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.errors import RecordExpired, StoreFailed
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.mapped_file import RESERVE_CHUNK_SIZE, MappedFile
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.simulation import Loss, SimulatedMachine
from tests.unit.storage.memory import resident_kib
from tests.unit.storage.small_disk import small_disk

FILES = PosixFileSystem()
SIZE = 64 << 10


def make(directory: Path, size: int = SIZE, *, reserve: int | None = None) -> MappedFile:
    return MappedFile.create(
        FILES,
        directory / "00000000000000065536",
        size,
        staged=directory / "staged",
        base_offset=65536,
        reserve=reserve,
    )


@pytest.fixture
def mapped(tmp_path: Path) -> MappedFile:
    return make(tmp_path)


@pytest.fixture
def simulated() -> tuple[SimulatedMachine, MappedFile]:
    machine = SimulatedMachine(seed=1)
    root = Path("/store")
    machine.disk.make_directories(root)
    return machine, MappedFile.create(machine.disk, root / "file", SIZE, staged=root / "staged")


def content(part: memoryview | None) -> bytes | None:
    return None if part is None else bytes(part)


def test_a_new_file_is_empty_and_of_full_length(mapped: MappedFile) -> None:
    assert (mapped.wrote_position, mapped.flushed_position, mapped.is_full) == (0, 0, False)
    assert (mapped.size, mapped.base_offset, mapped.end_offset) == (SIZE, 65536, 2 * SIZE)
    assert mapped.path.read_bytes() == bytes(SIZE)
    assert FILES.list(mapped.path.parent) == [mapped.path.name]
    assert "wrote 0 of 65536" in repr(mapped)


def test_a_file_that_is_there_is_not_replaced(mapped: MappedFile) -> None:
    mapped.view[0:3] = b"abc"
    with pytest.raises(FileExistsError, match="is there already"):
        make(mapped.path.parent)
    assert bytes(mapped.view[0:3]) == b"abc"


def test_a_leftover_in_staging_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "staged").write_bytes(b"half made")
    assert make(tmp_path).path.read_bytes() == bytes(SIZE)


def test_a_name_that_cannot_be_made_durable_is_taken_back() -> None:
    machine = SimulatedMachine(seed=1)
    machine.disk.make_directories(Path("/store"))
    machine.disk.fail_next("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        MappedFile.create(machine.disk, Path("/store/file"), SIZE, staged=Path("/store/staged"))
    assert machine.disk.list(Path("/store")) == []


def test_an_opened_file_counts_as_written_but_not_as_durable(mapped: MappedFile) -> None:
    opened = MappedFile.open(FILES, mapped.path)
    assert (opened.wrote_position, opened.flushed_position) == (SIZE, 0)
    assert opened.is_full


def test_a_read_only_file_cannot_be_changed(mapped: MappedFile) -> None:
    opened = MappedFile.open(FILES, mapped.path, writable=False)
    with pytest.raises(TypeError, match="read-only"):
        opened.view[0:1] = b"x"


def test_slices_end_at_the_wrote_position(mapped: MappedFile) -> None:
    mapped.view[0:6] = b"abcdef"
    mapped.wrote_position = 4
    part = mapped.slice(1, 3)
    assert content(part) == b"bcd"
    assert part is not None
    assert part.readonly
    assert mapped.slice(1, 4) is None
    assert mapped.slice(-1, 2) is None
    assert mapped.slice(1, -1) is None
    assert content(mapped.slice(4, 0)) == b""


def test_flush_moves_to_what_was_written_before_it(
    simulated: tuple[SimulatedMachine, MappedFile],
) -> None:
    machine, mapped = simulated
    mapped.view[0:3] = b"abc"
    mapped.wrote_position = 3
    assert mapped.flush() == mapped.flushed_position == 3
    after = machine.disk.power_cut(0, Loss.DROP)
    assert after.read(mapped.path)[:4] == b"abc\0"


def test_flush_without_anything_new_leaves_the_disk_alone(
    simulated: tuple[SimulatedMachine, MappedFile],
) -> None:
    machine, mapped = simulated
    operations = len(machine.disk.trace)
    assert mapped.flush() == 0
    assert len(machine.disk.trace) == operations


def test_a_failed_sync_moves_nothing_and_is_never_forgotten(
    simulated: tuple[SimulatedMachine, MappedFile],
) -> None:
    machine, mapped = simulated
    mapped.view[0:3] = b"abc"
    mapped.wrote_position = 3
    machine.disk.fail_next("sync", errno.EIO)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="Input/output error"):
            mapped.flush()
    assert mapped.flushed_position == 0


def test_concurrent_flushes_end_at_the_last_written_byte(mapped: MappedFile) -> None:
    def append_and_flush() -> None:
        for _ in range(50):
            with lock:
                mapped.wrote_position += 16
                end = mapped.wrote_position
            assert mapped.flush() >= end

    lock = threading.Lock()
    threads = [threading.Thread(target=append_and_flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mapped.flushed_position == mapped.wrote_position == 4 * 50 * 16


def test_set_end_takes_back_what_is_cut(mapped: MappedFile) -> None:
    mapped.wrote_position = 1000
    mapped.flush()
    mapped.set_end(600)
    assert (mapped.wrote_position, mapped.flushed_position) == (600, 600)
    mapped.set_end(800)
    assert (mapped.wrote_position, mapped.flushed_position) == (800, 600)
    mapped.mark_flushed(5000)
    assert mapped.flushed_position == 800
    with pytest.raises(ValueError, match="not inside"):
        mapped.set_end(SIZE + 1)


def test_holders_delay_removal(mapped: MappedFile) -> None:
    with mapped.hold():
        assert not mapped.destroy(now=10.0, force_after_s=120)
        assert mapped.path.exists()
        assert not mapped.is_available
        assert not mapped.acquire()
    assert mapped.destroy(now=11.0, force_after_s=120)
    assert not mapped.path.exists()
    assert mapped.is_removed


def test_a_file_being_removed_takes_no_new_holders(mapped: MappedFile) -> None:
    mapped.destroy(now=0.0, force_after_s=120)
    with pytest.raises(RecordExpired, match="being removed"), mapped.hold():
        raise AssertionError("held what is being removed")


def test_release_without_acquire_is_refused(mapped: MappedFile) -> None:
    with pytest.raises(ValueError, match="more often than acquired"):
        mapped.release()


def test_forced_removal_leaves_readers_their_memory(mapped: MappedFile) -> None:
    mapped.view[0:3] = b"abc"
    mapped.wrote_position = 3
    part = mapped.slice(0, 3)
    assert mapped.acquire()
    assert not mapped.destroy(now=100.0, force_after_s=120)
    assert not mapped.destroy(now=219.0, force_after_s=120)
    assert mapped.destroy(now=220.0, force_after_s=120)
    assert mapped.destroy(now=221.0, force_after_s=120)
    assert not mapped.path.exists()
    assert content(part) == b"abc"
    assert mapped.flush() == 0
    mapped.release()


def test_removing_a_file_that_was_unlinked_before_succeeds(mapped: MappedFile) -> None:
    mapped.path.unlink()
    assert mapped.destroy(now=0.0, force_after_s=0)


def test_memory_is_given_back_after_removal(tmp_path: Path) -> None:
    mapped = make(tmp_path)
    path = str(mapped.path)
    mapped.destroy(now=0.0, force_after_s=0)
    del mapped
    gc.collect(1)
    assert path not in Path("/proc/self/maps").read_text()


def test_a_closed_file_cannot_be_flushed(mapped: MappedFile) -> None:
    mapped.wrote_position = 1
    mapped.close()
    mapped.close()
    with pytest.raises(ValueError, match="flush before closing"):
        mapped.flush()
    assert mapped.path.exists()


def test_reservation_doubles_from_one_page_up_to_a_chunk_at_a_time(tmp_path: Path) -> None:
    mapped = make(tmp_path, 4 * RESERVE_CHUNK_SIZE, reserve=0)
    steps: list[int] = []
    for end in range(1, 3 * RESERVE_CHUNK_SIZE):
        mapped.ensure_reserved(end)
        if not steps or mapped.reserved != steps[-1]:
            steps.append(mapped.reserved)
            used = mapped.path.stat().st_blocks * 512 - mapped.reserved
            assert 0 <= used <= PAGE_SIZE, "one page for the list of extents"
    doubled = [PAGE_SIZE << power for power in range(7)]
    assert steps == [*doubled, 2 * RESERVE_CHUNK_SIZE, 3 * RESERVE_CHUNK_SIZE]
    assert mapped.path.stat().st_size == 4 * RESERVE_CHUNK_SIZE
    with pytest.raises(ValueError, match="cannot be reserved"):
        mapped.ensure_reserved(mapped.size + 1)


def test_writing_without_a_reservation_is_noticed_by_the_simulated_disk() -> None:
    machine = SimulatedMachine(seed=1)
    machine.disk.make_directories(Path("/store"))
    mapped = MappedFile.create(
        machine.disk, Path("/store/file"), SIZE, staged=Path("/store/staged"), reserve=4096
    )
    mapped.view[4095] = 1
    mapped.view[8191] = 1
    mapped.wrote_position = SIZE
    mapped.flush()
    assert machine.disk.holes_written == ["page 1 of /store/file"]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 512 << 10) as disk:
        yield disk


def test_a_full_disk_is_an_error_before_it_is_a_crash(full_disk: Path) -> None:
    mapped = make(full_disk, 1 << 20, reserve=RESERVE_CHUNK_SIZE)
    mapped.ensure_reserved(RESERVE_CHUNK_SIZE)
    with pytest.raises(OSError, match="cannot be reserved") as failure:
        mapped.ensure_reserved(2 * RESERVE_CHUNK_SIZE + 1)
    assert failure.value.errno == errno.ENOSPC
    mapped.view[RESERVE_CHUNK_SIZE - 1] = 1
    mapped.close()


def test_pages_are_populated_only_within_the_window(tmp_path: Path) -> None:
    mapped = make(tmp_path, 1 << 20)
    assert mapped.populate_at == mapped.size
    mapped.populate_ahead(256 << 10)
    assert resident_kib(mapped.path) == 256
    assert mapped.populate_at == 128 << 10
    mapped.wrote_position = 200 << 10
    mapped.populate_ahead(256 << 10)
    assert resident_kib(mapped.path) == 456
    mapped.wrote_position = 900 << 10
    mapped.populate_ahead(256 << 10)
    assert mapped.populate_at == mapped.size


def test_pages_far_ahead_are_loaded_in_steps(tmp_path: Path) -> None:
    mapped = make(tmp_path, 16 << 20)
    sizes = []
    for wrote in (0, 32, 64, 96, 128):
        mapped.wrote_position = wrote << 10
        mapped.populate_ahead(64 << 10, 4 << 20, 1 << 20)
        sizes.append(resident_kib(mapped.path))
    for found, least in zip(sizes, (1088, 2112, 3136, 4160, 4224), strict=True):
        assert least <= found < least + 128, "with what the system reads ahead"


def test_a_writer_near_the_end_of_the_loaded_pages_has_all_loaded_at_once(tmp_path: Path) -> None:
    mapped = make(tmp_path, 4 << 20)
    mapped.populate_ahead(64 << 10, 512 << 10, 64 << 10)
    mapped.wrote_position = 1 << 20
    mapped.populate_ahead(64 << 10, 512 << 10, 64 << 10)
    assert mapped.populate_at == (1 << 20) + (32 << 10)
    assert resident_kib(mapped.path) >= 128 + 512
