"""An index is rebuilt beside a writer while processes die, power is cut, and segments expire."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqstore.storage.index.publication import index_names
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_message
from tests.unit.storage.rebuild_job import RebuildJob

ROOT = Path("/store")
PUTS = 130


class Life:
    """A store whose index is rebuilt; every effect on its disk may be the last."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.placed: dict[int, int] = {}
        self.indexed: dict[int, int] = {}
        self.min_offset = 0
        options = StoreOptions(boot_id="0" * 32, pid=1)
        self.store = MessageStore.open(ROOT, CONFIG, self.machine.seams, options)

    def put(self, count: int = PUTS) -> None:
        for _ in range(count):
            number = len(self.placed)
            new = NewMessage(number, 40, number % 7, None)
            now_ms = self.machine.clock.now_ms()
            message = message_of(self.store, ("T", number % 2), new, now_ms)
            self.placed[number] = put_message(self.store, message, Durability.ASYNC).physical_offset
        self.store.wait_for_index()
        self.indexed = dict(self.placed)

    def expire(self) -> None:
        self.min_offset = self.store.log.files.files[1].base_offset  # readers may lose them now
        self.store.expire(1)
        for _ in self.store.retention.removal.remove_derived():
            pass

    def rebuild(self, *, lapses: bool) -> int:
        """Returns the number of crashes."""
        self.put()
        self.put()
        points = CrashPoints(self.chance, self._examine)
        with points.of(self.machine.disk):
            job = RebuildJob(self.store, self.store.rebuilds.begin("a test", lease_s=60), parts=3)
            self.put(40)
            job.fill()
            self.expire()
            self.put(40)
            if lapses:
                self.machine.clock.advance(61)
                self.store.rebuilds.step(self.machine.clock.monotonic())
                assert self.store.rebuilds.running is None
            else:
                published = job.publish()
                assert set(published.replaced).isdisjoint(index_names(self.files, self.store.paths))
            self.put(40)
            self.store.close()
        self.check(self.machine.disk.kill())
        return points.states

    @property
    def files(self) -> SimulatedDisk:
        return self.machine.disk

    def _examine(self, disk: SimulatedDisk, loss: Loss | None) -> None:
        self._readers_find_all(self.files.kill())
        self._writer_finds_all()
        if loss is None:
            self.check(disk)
        else:
            self.check(disk, self.store.log.flushed_offset)

    def _writer_finds_all(self) -> None:
        index = self.store.index
        for number, offset in self.indexed.items():
            if offset >= self.min_offset:
                assert offset in index.query("T", f"n{number}", 100).offsets, number

    def _readers_find_all(self, disk: SimulatedDisk) -> None:
        """In the files as they are now."""
        seams = SimulatedMachine(1, clock=disk.clock, disk=disk).seams
        index = IndexService(StorePaths(ROOT), CONFIG, StoreFormat.V4_9, seams, writable=False)
        index.load(safe=True)
        for number, offset in self.indexed.items():
            if offset >= self.min_offset:
                assert offset in index.query("T", f"n{number}", 100).offsets, number
        index.close()

    def check(self, disk: SimulatedDisk, durable: int | None = None) -> None:
        """All of the log, or what was on disk, is found once the index has caught up."""
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        options = StoreOptions(boot_id="0" * 32, pid=1)
        with MessageStore.open(ROOT, CONFIG, machine.seams, options) as store:
            store.wait_for_index()
            paths, low = store.paths, store.log.min_offset
            high = store.log.max_offset if durable is None else durable
            assert machine.disk.stat(paths.index_staging) is None
            assert machine.disk.stat(paths.index_journal) is None
            assert store.dispatcher.catch_up.complete
            for number, offset in self.placed.items():
                if low <= offset < high:
                    assert offset in store.index.query("T", f"n{number}", 100).offsets, number
            names = set(index_names(machine.disk, paths))
            assert {file.path.name for file in store.index.files} == names


@pytest.mark.slow
@pytest.mark.parametrize("lapses", [False, True])
def test_every_crash_beside_a_rebuild_leaves_all_keys_to_be_found(lapses: bool) -> None:
    assert Life(1).rebuild(lapses=lapses) > 10
