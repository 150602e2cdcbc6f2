from __future__ import annotations

import ctypes
import errno
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.mapped.warm_up import MemoryLocks, WarmUp
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedMachine
from tests.unit.storage.memory import locked_kib, resident_kib
from tests.unit.storage.stores import CONFIG, bodies, open_store, put_some

SIZE = 16 * PAGE_SIZE
KIB = SIZE >> 10
PAGES_A_STEP = 3
WARM = CONFIG.model_copy(update={"warm_maped_file_enable": True})
SYNC = {"flush_disk_type": FlushDiskType.SYNC}

UNDER_A_SMALL_LIMIT = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
rights = (ctypes.c_uint32 * 6)()
assert libc.capget(header, rights) == 0
rights[0] &= ~(1 << 14)  # CAP_IPC_LOCK, in root's effective set: with it there is no limit
assert libc.capset(header, rights) == 0
import logging
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
from pathlib import Path
from tests.unit.storage.memory import locked_kib
from tests.unit.storage.mapped.test_warm_up import WARM
from tests.unit.storage.stores import all_bodies, bodies, open_store, put_some
pooled = {"transient_store_pool_enable": True, "transient_store_pool_size": 3}
with open_store(Path(sys.argv[1]), WARM.model_copy(update=pooled)) as store:
    put_some(store, 2000)
    store.wait_for_index()
    assert bodies(store) == all_bodies(2000)
    assert len(store.log.files.files) > 3
    assert locked_kib() <= 4, locked_kib()
"""


def warm(**changes: object) -> WarmUp:
    config = StoreConfig(
        warm_maped_file_enable=True, flush_least_pages_when_warm_maped_file=PAGES_A_STEP
    )
    found = WarmUp.of(config.model_copy(update=changes), MemoryLocks())
    assert found is not None
    return found


def queue_in(root: Path, how: WarmUp | None, *, window: int | None = None) -> MappedFileQueue:
    seams = production_seams()
    return MappedFileQueue(
        root / "log", SIZE, seams, staging=root / "staging", warm_up=how, populate_window=window
    )


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[MappedFileQueue]:
    queue = queue_in(tmp_path, warm())
    yield queue
    queue.close()


def is_resident(mapped: MappedFile) -> list[bool]:
    """By page: whether the page cache has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = (ctypes.c_ubyte * (mapped.size // mmap.PAGESIZE))()
    address = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapped.view))
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(mapped.size), found) == 0
    return [bool(page & 1) for page in found]


def test_a_new_file_is_wholly_in_memory_and_stays_there(queue: MappedFileQueue) -> None:
    before = locked_kib()
    mapped = queue.add(0)
    assert all(is_resident(mapped))
    assert resident_kib(mapped.path) == KIB
    assert locked_kib() == before + KIB
    assert mapped.populate_at == mapped.size


def test_without_the_setting_nothing_is_locked(tmp_path: Path) -> None:
    assert WarmUp.of(StoreConfig(), MemoryLocks()) is None
    before = locked_kib()
    queue = queue_in(tmp_path, None, window=PAGE_SIZE)
    assert resident_kib(queue.add(0).path) == PAGE_SIZE >> 10
    assert locked_kib() == before
    queue.close()


def test_a_file_of_an_earlier_process_is_not_warmed_up(tmp_path: Path) -> None:
    queue_in(tmp_path, warm()).add(0).close()
    before = locked_kib()
    again = queue_in(tmp_path, warm())
    again.load()
    assert locked_kib() == before
    again.close()


def test_an_unlocked_file_gives_its_memory_free_once(queue: MappedFileQueue) -> None:
    before = locked_kib()
    mapped = queue.add(0)
    for _ in range(2):
        mapped.unlock()
        assert locked_kib() == before
    assert not mapped.is_locked


def test_a_removed_file_is_unlocked_though_it_is_still_read(queue: MappedFileQueue) -> None:
    before = locked_kib()
    view = queue.add(0).view
    assert queue.remove_first(1) == 1
    assert locked_kib() == before
    assert bytes(view) == bytes(SIZE)


def test_a_closed_file_is_unlocked_though_it_is_still_read(queue: MappedFileQueue) -> None:
    before = locked_kib()
    view = queue.add(0).view
    queue.close()
    assert locked_kib() == before
    assert bytes(view) == bytes(SIZE)


def test_the_allocation_service_unlocks_what_is_full_when_nothing_else_is_due(
    queue: MappedFileQueue,
) -> None:
    service = AllocationService(production_seams())
    before = locked_kib()
    mapped = queue.add(0)
    service.request(queue, SIZE, None)
    service.unlock(mapped)
    assert service.step(0.0) == 0.0
    assert locked_kib() == before + 2 * KIB
    service.step(0.0)
    assert locked_kib() == before + KIB
    service.close()
    assert locked_kib() == before


def simulated_queue(**config: object) -> tuple[SimulatedMachine, MappedFileQueue]:
    machine = SimulatedMachine(1)
    root = Path("/store")
    queue = MappedFileQueue(
        root / "log", SIZE, machine.seams, staging=root / "staging", warm_up=warm(**config)
    )
    return machine, queue


def syncs_while_made(**config: object) -> list[int]:
    """Their numbers in the disk's trace."""
    machine, queue = simulated_queue(**config)
    queue.add(0)
    wanted = f"sync {queue.path_of(0)}"
    return [number for number, line in enumerate(machine.disk.trace) if line == wanted]


def test_in_sync_flush_mode_every_step_is_brought_to_disk() -> None:
    assert len(syncs_while_made(**SYNC)) == -(-16 // PAGES_A_STEP)
    assert syncs_while_made() == []


def test_a_file_that_the_disk_refuses_to_warm_up_does_not_stay() -> None:
    for number in syncs_while_made(**SYNC):
        machine, queue = simulated_queue(**SYNC)
        machine.disk.fail_at(number, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            queue.add(0)
        assert machine.disk.list(queue.directory) == []
        assert queue.add(0).base_offset == 0


def locked_segments(store: MessageStore) -> list[bool]:
    return [segment.is_locked for segment in store.log.files.files]


def test_a_store_keeps_the_segment_in_memory_that_it_writes_to(tmp_path: Path) -> None:
    before = locked_kib()
    with open_store(tmp_path / "store", WARM) as store:
        put_some(store, 2000)
        files = store.log.files.files
        assert len(files) > 3
        store._parts.core.allocation.close()  # after its last step
        while locked_segments(store) != [False] * (len(files) - 1) + [True]:
            store._parts.core.allocation.step(0.0)
        assert locked_kib() == before + (files[-1].size >> 10)
        assert len(bodies(store)) == 2000
    assert locked_kib() == before


def test_refused_locks_are_one_warning_and_the_store_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_SMALL_LIMIT, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1, done.stdout
    assert "memory cannot be locked" in warnings[0]
    assert "raise RLIMIT_MEMLOCK" in warnings[0]
