"""A whole store through a TransientStorePool."""

from __future__ import annotations

import errno
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import StoreFailed, StoreNotWritable
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.forked_processes import start_program
from tests.simulation import Loss, PowerCut, SimulatedDisk, SimulatedMachine
from tests.unit.storage.puts import put_batch, put_message
from tests.unit.storage.stores import (
    CONFIG,
    all_bodies,
    bodies,
    message,
    open_store,
    put_some,
)

POOLED = CONFIG.model_copy(
    update={"transient_store_pool_enable": True, "transient_store_pool_size": 3}
)
SLOW = POOLED.model_copy(
    update={"commit_interval_commit_log": 10**9, "commit_commit_log_thorough_interval": 10**9}
)
"""Nothing is committed but for those who wait."""

PUT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tests.unit.storage.stores import message, open_store, put_some
from tests.unit.storage.test_pooled_store import SLOW
store = open_store(Path(sys.argv[1]), SLOW)
put_some(store, 500)
appended = [store.append(message(store, 1000 + n)) for n in range(400)]
assert appended[-1].physical_offset // (64 << 10) > store.log.max_offset // (64 << 10)
print(store.log.max_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_put_is_there_at_once_and_after_a_close(root: Path) -> None:
    with open_store(root, POOLED) as store:
        put_some(store, 1500)
        assert store.commits is not None
        assert store.log.max_offset == store.state.max_offset == store.commits.committed_offset
        store.wait_for_index()
        assert bodies(store) == all_bodies(1500)
        assert len(store.log.files.files) > 3
    with open_store(root) as plain:
        assert plain.recovery.plan.scanned_bytes == 0
        assert bodies(plain) == all_bodies(1500)


def test_it_writes_the_same_bytes_as_a_store_without_one() -> None:
    found = []
    for config in (CONFIG, POOLED):
        machine = SimulatedMachine(1)
        machine.disk.make_directories(SIMULATED)
        for start in (0, 700):
            with open_simulated(machine, config) as store:
                put_some(store, 700, start=start)
                batch = [message(store, n) for n in range(40)]
                put_batch(store, batch, Durability.SYNC)
                store.wait_for_index()
        parts = ("/store/commitlog/", "/store/consumequeue/", "/store/index/")
        paths = [path for path in machine.disk.paths() if str(path).startswith(parts)]
        found.append({str(path): machine.disk.read(path) for path in paths})
    plain, pooled = found
    assert len(plain) > 5
    assert plain == pooled


def test_the_segment_of_an_earlier_process_is_written_in_place(root: Path) -> None:
    with open_store(root, SLOW) as store:
        put_some(store, 10)
    with open_store(root, SLOW) as store:
        assert store.commits is not None
        in_place = store.append(message(store, 10))
        assert store.commits.request(in_place.end).done
        store.wait_for_index()
        assert len(bodies(store)) == 11
        put_some(store, 600, start=11)
        buffered = store.append(message(store, 611))
        assert not store.commits.request(buffered.end).done
    with open_store(root) as plain:
        assert bodies(plain) == all_bodies(612)


def test_readers_of_other_processes_see_only_what_is_committed(root: Path) -> None:
    with open_store(root, SLOW) as store, StoreReader.open(root, production_seams()) as reader:
        first = put_message(store, message(store, 0))
        later = store.append(message(store, 1))
        assert reader.lookups.queue_range("T", 0).max_offset == 1
        assert store.commits is not None
        store.commits.wait(later.end)
        put_message(store, message(store, 2))
        assert reader.lookups.queue_range("T", 0).max_offset == 3
        assert reader.lookups.by_physical_offset(first.physical_offset).body == b"body 0 " * 10


def test_a_killed_process_leaves_exactly_what_was_committed(root: Path) -> None:
    process = start_program(PUT_AND_DIE, str(root))
    output, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    committed = int(output)
    with open_store(root) as store:
        assert store.log.max_offset == committed
        assert bodies(store) == all_bodies(500)
        assert put_message(store, message(store, 500), Durability.SYNC).physical_offset >= committed
        assert bodies(store) == all_bodies(501)


def test_many_threads_share_the_commits(root: Path) -> None:
    with open_store(root, POOLED) as store:

        def put(first: int) -> list[int]:
            numbers = range(first, first + 400)
            return [
                put_message(store, message(store, n, queue_id=n % 3)).physical_offset
                for n in numbers
            ]

        with ThreadPoolExecutor(4) as threads:
            placed = list(threads.map(put, range(0, 1600, 400)))
        assert all(offsets == sorted(offsets) for offsets in placed)
        store.wait_for_index()
        assert bodies(store) == all_bodies(1600)
    with open_store(root) as plain:
        assert bodies(plain) == all_bodies(1600)


class Ahead:
    """A store on a simulated machine whose puts are segments ahead of the commit."""

    def __init__(self) -> None:
        self.machine = SimulatedMachine(2)
        self.machine.disk.make_directories(SIMULATED)
        self.store = open_simulated(self.machine, SLOW)
        self.acknowledged = put_message(self.store, message(self.store, 0)).end
        later = [self.store.append(message(self.store, number)) for number in range(1, 700)]
        self.ends = [self.acknowledged, *(placement.end for placement in later)]
        self.effects = len(self.machine.disk.effects)

    def commit_and_flush(self) -> None:
        assert self.store.commits is not None
        self.store.commits.commit()
        self.store.flush.flush_all()

    def check(self, disk: SimulatedDisk, floor: int) -> None:
        """A crash leaves what was promised, and of the rest what came first."""
        with open_simulated(self.machine.restart(disk), CONFIG) as found:
            assert floor <= found.log.max_offset
            count = sum(end <= found.log.max_offset for end in self.ends)
            assert bodies(found) == all_bodies(count)
            put_some(found, 3, start=count)
            assert bodies(found) == all_bodies(count + 3)


SIMULATED = Path("/store")


def open_simulated(machine: SimulatedMachine, config: StoreConfig) -> MessageStore:
    options = StoreOptions(format=StoreFormat.V5_X, boot_id="0" * 32, pid=1)
    return MessageStore.open(SIMULATED, config, machine.seams, options)


def commit_effects() -> dict[int, str]:
    """By number in the disk's trace, what a commit of several segments and its flush do."""
    ahead = Ahead()
    ahead.commit_and_flush()
    disk = ahead.machine.disk
    effects = {number: disk.trace[number] for number in disk.effects[ahead.effects :]}
    assert sum(effect.startswith("write_through") for effect in effects.values()) == 3
    return effects


@pytest.mark.slow
def test_a_crash_within_a_commit_of_several_segments_leaves_no_gap() -> None:
    for number in commit_effects():
        ahead = Ahead()
        ahead.machine.disk.cut_at(number)
        with pytest.raises(PowerCut):
            ahead.commit_and_flush()
        committed = ahead.store.log.max_offset
        ahead.check(ahead.machine.disk.kill(), max(committed, ahead.acknowledged))
        for loss in (Loss.DROP, Loss.PREFIX):
            ahead.check(ahead.machine.disk.power_cut(number, loss), ahead.store.log.flushed_offset)


def test_a_disk_that_fails_within_a_commit_loses_nothing_acknowledged() -> None:
    for number, effect in commit_effects().items():
        if "/commitlog/" not in effect:
            continue
        ahead = Ahead()
        ahead.machine.disk.fail_at(number, errno.EIO)
        with pytest.raises(StoreFailed):
            ahead.commit_and_flush()
        assert ahead.store.failure is not None
        with pytest.raises((StoreFailed, StoreNotWritable)):
            put_message(ahead.store, message(ahead.store, 9999))
        ahead.check(ahead.machine.disk.kill(), ahead.store.log.max_offset)


def test_a_sync_put_is_on_disk_when_it_returns(root: Path) -> None:
    with open_store(root, SLOW) as store:
        placement = put_message(store, message(store, 0), Durability.SYNC)
        assert store.log.flushed_offset >= placement.end


def test_nothing_of_it_is_there_where_it_means_nothing(root: Path) -> None:
    sync = POOLED.model_copy(update={"flush_disk_type": FlushDiskType.SYNC})
    with open_store(root, sync) as store:
        assert store.commits is None
        put_some(store, 1)
    with open_store(root, POOLED, services=False, in_place=False) as looked_at:
        assert looked_at.commits is None
        assert len(bodies(looked_at)) == 1
