"""A broker's seek by time over a store that a recovery of ours has put tombstones into."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore
from tests.compat.referee import Referee
from tests.simulation import SimulatedMachine
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.world import ROOT, open_store, rocketmq_settings
from tests.unit.storage.puts import put_message

MESSAGES = 12
QUEUE = ("T", 0)


@pytest.mark.slow
@pytest.mark.referee
@pytest.mark.parametrize("lost", [range(6, 7), range(5, 8)], ids=["one", "three"])
def test_a_seek_by_time_finds_its_message_before_and_behind_tombstones(
    referee: Referee, tmp_path: Path, lost: range
) -> None:
    """The lost range begins at the durable watermark: nothing before it is read."""
    machine = SimulatedMachine(1)
    machine.disk.make_directories(ROOT)
    store_format = StoreFormat(referee.format)
    store = open_store(machine.seams, store_format)
    offsets, times_ms = [], []
    for number in range(MESSAGES):
        machine.clock.advance(1)
        durability = Durability.SYNC if number == lost.start - 1 else Durability.ASYNC
        message = message_of(store, QUEUE, NewMessage(number, 60, 0, None), 0)
        placed = put_message(store, message, durability)
        offsets.append(placed.physical_offset)
        times_ms.append(placed.store_timestamp_ms)
    again = machine.restart(machine.disk.kill())
    _erase(again, store, offsets[lost.start], offsets[lost.stop])

    store = open_store(again.seams, store_format)

    assert [each.kind for each in store.recovery.plan.actions][: len(lost)] == [
        "place-tombstone" for _ in lost
    ]
    kept = [number for number in range(MESSAGES) if number not in lost]
    found = [store.lookups.offset_by_time(*QUEUE, times_ms[number]) for number in kept]
    again.disk.save(ROOT, tmp_path / "store")
    theirs = referee.times(
        tmp_path / "store", rocketmq_settings(CONFIG), "T", [times_ms[number] for number in kept]
    )
    for number, ours, broker in zip(kept, found, theirs, strict=True):
        # What was lost has the time of the first message behind it.
        allowed = {number, *lost} if number == lost.stop else {number}
        assert ours in allowed
        assert broker in allowed


def _erase(machine: SimulatedMachine, store: MessageStore, start: int, stop: int) -> None:
    path = store.log.files.files[0].path
    mapped = machine.disk.map(path, writable=True)
    mapped.view[start:stop] = bytes(stop - start)
    mapped.sync()
    mapped.unmap()
