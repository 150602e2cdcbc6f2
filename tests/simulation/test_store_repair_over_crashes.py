"""``mqstore store repair`` is cut off by kills and power cuts at every step: the next run ends it.

Wherever the crash comes, the next repair leaves a store without findings, and every message that
the damage did not touch can be read.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import segment_name
from mqstore.storage.store_repair import DERIVED_PARTS, REMEDIES, Remedy, RepairOutcome, StoreRepair
from mqstore.storage.verify import Verification
from tests.long_runs import few_first
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints, every
from tests.simulation.damaged_store import PATHS, ROOT, DamagedStore
from tests.simulation.driver import CONFIG

MESSAGES = 120
CHOSEN = CONFIG.model_copy(update={"mapped_file_size_commit_log": 16 << 10})
STEPS = 12
"""Every so manyth effect of a repair is the last one; each one in ``make nightly``."""


class Life(DamagedStore):
    """A damaged store; every effect of its repair may be the last."""

    def __init__(self, seed: int, damage: Callable[[Life], None], *remakes: Remedy) -> None:
        super().__init__(seed, CHOSEN, StoreFormat.V4_9, MESSAGES)
        self.remakes = frozenset(remakes)
        damage(self)

    def repair(self, machine: SimulatedMachine) -> RepairOutcome:
        return StoreRepair(ROOT, CHOSEN, machine.seams, lambda *_: None, self.remakes).run()

    def run(self) -> int:
        """Returns the number of crashes."""
        points = CrashPoints(self.chance, lambda disk, _: self.check(disk), every(STEPS))
        with points.of(self.machine.disk):
            outcome = self.repair(self.machine)
        assert outcome.is_needed
        assert not outcome.left
        self.check(self.machine.disk.kill())
        return points.states

    def check(self, disk: SimulatedDisk) -> None:
        """Repair what a crash has left: nothing is found then, and the others are there."""
        machine = self.after(disk)
        assert not self.repair(machine).left
        findings = Verification(ROOT, CHOSEN, machine.seams).findings()
        assert [each for each in findings if REMEDIES[each.kind] is not Remedy.NOTHING] == []
        with self.open(machine) as store:
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


DAMAGES = [
    *(damaged_records, damaged_queue, damaged_index, lost_segment, misfit_segment),
    *(small_files, taken_queue_offset),
]


@pytest.mark.parametrize("damage", few_first(DAMAGES, len(DAMAGES)))
def test_a_repair_that_is_cut_off_is_ended_by_the_next(damage: Callable[[Life], None]) -> None:
    assert Life(11, damage).run() > 0


def whole(life: Life) -> None:
    pass


def test_a_rebuild_that_is_cut_off_leaves_a_store_that_opens_and_is_ended_by_the_next() -> None:
    class Rebuilt(Life):
        def check(self, disk: SimulatedDisk) -> None:
            with self.open(self.after(disk.kill())) as store:
                self._others_are_served(store)
            super().check(disk)

    assert Rebuilt(11, whole, *DERIVED_PARTS).run() > 3
