"""``mqstore store repair`` is cut off by kills and power cuts at every step: the next run ends it.

Wherever the crash comes, the next repair leaves a store without findings, and every message that
the damage did not touch can be read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_repair import REMEDIES, Remedy, RepairOutcome, StoreRepair
from mqstore.storage.verify import Verification
from tests.long_runs import few_first, sampled_step
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CRASHES
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.unit.storage.puts import put_message

ROOT = Path("/store")
PATHS = StorePaths(ROOT)
MESSAGES = 120
CHOSEN = CONFIG.model_copy(update={"mapped_file_size_commit_log": 16 << 10})
STEPS = 12
"""Every so manyth effect of a repair is the last one; each one in ``make nightly``."""


class Life:
    """A damaged store; every effect of its repair may be the last."""

    def __init__(self, seed: int, damage: Callable[[Life], None]) -> None:
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.touched: set[int] = set()
        self.places = self.states = 0
        self.found: BaseException | None = None
        options = StoreOptions(format=StoreFormat.V4_9, boot_id="0" * 32, pid=1)
        with MessageStore.open(ROOT, CHOSEN, self.machine.seams, options) as store:
            placed = []
            for number in range(MESSAGES):
                new = NewMessage(number, 300, number % 7, None)
                message = message_of(store, ("T", number % 2), new, self.machine.clock.now_ms())
                placed.append(put_message(store, message, Durability.SYNC).physical_offset)
            self.due: list[Record] = [store.lookups.by_physical_offset(each) for each in placed]
        damage(self)

    # damage, behind the store's back and durable

    def write(self, path: Path, position: int, data: bytes) -> None:
        disk = self.machine.disk
        mapped = disk.map(path, writable=True)
        mapped.view[position : position + len(data)] = data
        disk.sync_inode(str(path), disk._inode(str(path)))
        mapped.unmap()

    def write_log(self, offset: int, data: bytes) -> None:
        size = CHOSEN.mapped_file_size_commit_log
        path = PATHS.commit_log / segment_name(offset - offset % size)
        self.write(path, offset % size, data)

    def touch(self, start: int, stop: int) -> None:
        """Messages in this range of the log may be lost."""
        self.touched |= {
            each.physical_offset
            for each in self.due
            if each.physical_offset < stop and start < each.physical_offset + each.size
        }

    def remove(self, path: Path) -> None:
        self.machine.disk.unlink(path)
        self.machine.disk.sync_directory(path.parent)

    # repairs

    def repair(self, machine: SimulatedMachine) -> RepairOutcome:
        return StoreRepair(ROOT, CHOSEN, machine.seams, lambda *_: None).run()

    def run(self) -> None:
        self.machine.disk.before_effect = self._crash_point
        outcome = self.repair(self.machine)
        self.machine.disk.before_effect = None
        if self.found is not None:
            raise self.found
        assert outcome.is_needed
        assert not outcome.left
        self.check(self.machine.disk.kill())

    def _crash_point(self) -> None:
        if self.found is not None:
            return
        self.places += 1
        if self.places % sampled_step(STEPS):
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
        """Repair what a crash has left: nothing is found then, and the others are there."""
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        assert not self.repair(machine).left
        findings = Verification(ROOT, CHOSEN, machine.seams).findings()
        assert [each for each in findings if REMEDIES[each.kind] is not Remedy.NOTHING] == []
        options = StoreOptions(boot_id="0" * 32, pid=1, services=False)
        with MessageStore.open(ROOT, CHOSEN, machine.seams, options) as store:
            self._others_are_served(store)

    def _others_are_served(self, store: MessageStore) -> None:
        for each in self.due:
            try:
                found = store.lookups.by_physical_offset(each.physical_offset)
            except StorageError:
                assert each.physical_offset in self.touched, each
                continue
            assert found == each or each.physical_offset in self.touched
            entry = store.queues.get("T", each.queue_id)
            assert entry is not None
            place = entry.entry(each.queue_offset)
            is_named = place is not None and place.physical_offset == each.physical_offset
            assert is_named or each.physical_offset in self.touched


def damaged_records(life: Life) -> None:
    life.write_log(4096, bytes(700))
    life.touch(4096, 4796)


def damaged_queue(life: Life) -> None:
    path = PATHS.consume_queue / "T" / "0" / segment_name(0)
    life.write(path, 5 * QUEUE_ENTRY_SIZE, bytes(2 * QUEUE_ENTRY_SIZE))
    life.write(path, 9 * QUEUE_ENTRY_SIZE + 7, b"\x05")
    life.remove(PATHS.consume_queue / "T" / "1" / segment_name(0))


def damaged_index(life: Life) -> None:
    names = life.machine.disk.list(PATHS.index)
    life.write(PATHS.index / names[0], 40, b"\xff\xff")


def lost_segment(life: Life) -> None:
    size = CHOSEN.mapped_file_size_commit_log
    life.remove(PATHS.commit_log / segment_name(size))
    life.touch(size, 2 * size)


def misfit_segment(life: Life) -> None:
    path = PATHS.commit_log / segment_name(CHOSEN.mapped_file_size_commit_log)
    life.machine.disk.extend(path, CHOSEN.mapped_file_size_commit_log + 100)


def small_files(life: Life) -> None:
    life.machine.disk.make_directories(PATHS.config)
    life.machine.disk.write(PATHS.commit_log / "strange", b"mine")
    life.machine.disk.write(PATHS.config / "topics.json", b"{")
    life.machine.disk.write(PATHS.checkpoint, b"short")
    life.machine.disk.write(PATHS.archive, b"{")
    for directory in (PATHS.commit_log, PATHS.config, PATHS.root, PATHS.ours):
        life.machine.disk.sync_directory(directory)


def taken_queue_offset(life: Life) -> None:
    for name in life.machine.disk.list(PATHS.blocks):
        life.remove(PATHS.blocks / name)
    first, second = life.due[20], life.due[22]
    life.write_log(second.physical_offset + 20, first.queue_offset.to_bytes(8))
    life.touch(second.physical_offset, second.physical_offset + 1)


DAMAGES = [
    *(damaged_records, damaged_queue, damaged_index, lost_segment, misfit_segment),
    *(small_files, taken_queue_offset),
]


@pytest.mark.parametrize("damage", few_first(DAMAGES, len(DAMAGES)))
def test_a_repair_that_is_cut_off_is_ended_by_the_next(damage: Callable[[Life], None]) -> None:
    life = Life(11, damage)
    life.run()
    assert life.states > 3
