"""Rot below the durable watermark is repaired while processes die and the power is cut.

Wherever a crash comes, no other message is lost, and the next repair leaves a log that a broker
does not cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.verify.broker import foresee
from tests.long_runs import few_first, sampled_step
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CRASHES
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.unit.storage.puts import put_message

pytestmark = pytest.mark.slow

ROOT = Path("/store")
MESSAGES = 150
CHOSEN = CONFIG.model_copy(update={"mapped_file_size_commit_log": 32 << 10})


def opened(machine: SimulatedMachine) -> MessageStore:
    options = StoreOptions(boot_id="0" * 32, pid=1, services=False)
    return MessageStore.open(ROOT, CHOSEN, machine.seams, options)


class Life:
    """A store whose log rotted below the watermark; every effect of the repair may be the last."""

    def __init__(self, seed: int, store_format: StoreFormat, rot: Callable[[Life], None]) -> None:
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.touched: set[int] = set()
        self.places = self.states = 0
        self.found: BaseException | None = None
        options = StoreOptions(format=store_format, boot_id="0" * 32, pid=1)
        with MessageStore.open(ROOT, CHOSEN, self.machine.seams, options) as store:
            placed = []
            for number in range(MESSAGES):
                new = NewMessage(number, 300, number % 7, None)
                message = message_of(store, ("T", number % 2), new, self.machine.clock.now_ms())
                placed.append(put_message(store, message, Durability.SYNC).physical_offset)
            self.due: list[Record] = [store.lookups.by_physical_offset(each) for each in placed]
        rot(self)

    def poke(self, offset: int, data: bytes) -> None:
        """Behind the store's back, and durable."""
        size = CHOSEN.mapped_file_size_commit_log
        path = ROOT / "commitlog" / f"{offset - offset % size:020d}"
        disk, at = self.machine.disk, offset % size
        mapped = disk.map(path, writable=True)
        mapped.view[at : at + len(data)] = data
        disk.sync_inode(str(path), disk._inode(str(path)))
        mapped.unmap()
        end = offset + len(data)
        self.touched |= {
            each.physical_offset
            for each in self.due
            if each.physical_offset < end and offset < each.physical_offset + each.size
        }

    def repair(self) -> None:
        store = opened(self.machine)
        self.machine.disk.before_effect = self._crash_point
        report = store.repair_damage()
        self.machine.disk.before_effect = None
        if self.found is not None:
            raise self.found
        assert report.done
        self.check(self.machine.disk.kill())

    def _crash_point(self) -> None:
        if self.found is not None:
            return
        self.places += 1
        if self.places % sampled_step(2):
            return
        self.states += 1
        loss = self.chance.choice(CRASHES)
        disk, seed = self.machine.disk, self.chance.getrandbits(32)
        try:
            self.check(disk.kill() if loss is None else disk.power_cut(seed, loss))
        except BaseException as error:
            self.found = error
            raise

    def check(self, disk: SimulatedDisk) -> None:
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        with opened(machine) as store:
            self._others_are_served(store)
            store.repair_damage()
            self._others_are_served(store)
            assert not store.plan_repairs().actions
            end = store.log.max_offset
            broker = foresee(store._parts.directory.view, end)
            assert broker.end >= end, "a broker would cut the log"

    def _others_are_served(self, store: MessageStore) -> None:
        for each in self.due:
            try:
                found = store.lookups.by_physical_offset(each.physical_offset)
            except StorageError:
                assert each.physical_offset in self.touched, each
                continue
            assert found == each, "another message than was written"


def flipped_bit(life: Life) -> None:
    """In a body of an old segment: a broker cuts there."""
    each = life.due[30]
    byte = each.raw[100]
    life.poke(each.physical_offset + 100, bytes([byte ^ 4]))


def flipped_header(life: Life) -> None:
    each = life.due[30]
    life.poke(each.physical_offset + 3, bytes([each.raw[3] ^ 16]))


def lost_sectors(life: Life) -> None:
    life.poke(4096, bytes(4096))


def lost_and_flipped(life: Life) -> None:
    lost_sectors(life)
    flipped_header(life)
    each = life.due[-20]
    life.poke(each.physical_offset + 120, bytes([each.raw[120] ^ 1]))


@pytest.mark.parametrize("store_format", StoreFormat)
@pytest.mark.parametrize(
    "rot", few_first([lost_and_flipped, flipped_bit, flipped_header, lost_sectors])
)
def test_a_repair_may_be_cut_off_anywhere(
    store_format: StoreFormat, rot: Callable[[Life], None]
) -> None:
    life = Life(11, store_format, rot)
    life.repair()
    assert life.states > 5


def test_without_a_repair_a_broker_would_cut() -> None:
    """The simulation finds the cut that a broker makes in an unrepaired store."""
    life = Life(11, StoreFormat.V4_9, flipped_bit)
    with opened(life.machine) as store:
        assert foresee(store._parts.directory.view, store.log.max_offset).end < store.log.max_offset
