"""Rot below the durable watermark is repaired while processes die and the power is cut.

Wherever a crash comes, no other message is lost, and the next repair leaves a log that a broker
does not cut.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.verify.broker import foresee
from tests.long_runs import few_first
from tests.simulation import SimulatedDisk
from tests.simulation.crashes import CrashPoints, every
from tests.simulation.damaged_store import DamagedStore
from tests.simulation.driver import CONFIG

pytestmark = pytest.mark.slow

MESSAGES = 150
CHOSEN = CONFIG.model_copy(update={"mapped_file_size_commit_log": 32 << 10})


class Life(DamagedStore):
    """A store whose log rotted below the watermark; every effect of the repair may be the last."""

    def __init__(self, seed: int, store_format: StoreFormat, rot: Callable[[Life], None]) -> None:
        super().__init__(seed, CHOSEN, store_format, MESSAGES)
        rot(self)

    def repair(self) -> int:
        """Returns the number of crashes."""
        store = self.open(self.machine)
        points = CrashPoints(self.chance, lambda disk, _: self.check(disk), every(2))
        with points.of(self.machine.disk):
            report = store.repair_damage()
        assert report.done
        self.check(self.machine.disk.kill())
        return points.states

    def check(self, disk: SimulatedDisk) -> None:
        with self.open(self.after(disk)) as store:
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
    life.write_log(each.physical_offset + 100, bytes([byte ^ 4]))


def flipped_header(life: Life) -> None:
    each = life.due[30]
    life.write_log(each.physical_offset + 3, bytes([each.raw[3] ^ 16]))


def lost_sectors(life: Life) -> None:
    life.write_log(4096, bytes(4096))


def lost_and_flipped(life: Life) -> None:
    lost_sectors(life)
    flipped_header(life)
    each = life.due[-20]
    life.write_log(each.physical_offset + 120, bytes([each.raw[120] ^ 1]))


@pytest.mark.parametrize("store_format", StoreFormat)
@pytest.mark.parametrize(
    "rot", few_first([lost_and_flipped, flipped_bit, flipped_header, lost_sectors])
)
def test_a_repair_may_be_cut_off_anywhere(
    store_format: StoreFormat, rot: Callable[[Life], None]
) -> None:
    life = Life(11, store_format, rot)
    assert life.repair() > 5


def test_without_a_repair_a_broker_would_cut() -> None:
    """The simulation finds the cut that a broker makes in an unrepaired store."""
    life = Life(11, StoreFormat.V4_9, flipped_bit)
    with life.open(life.machine) as store:
        assert foresee(store._parts.directory.view, store.log.max_offset).end < store.log.max_offset
