"""A broker opens a store of ours whose clock was set forward by a day, and back again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from tests.compat.compare import Dump
from tests.compat.referee import Referee
from tests.simulation import SimulatedMachine
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT, open_store, rocketmq_settings
from tests.unit.storage.puts import put_message

DAY_MS = 86_400_000
COUNT = 120
"""Messages of each time: several segments, index files and queue files."""
QUEUE = "T", 0


@pytest.mark.slow
@pytest.mark.referee
@pytest.mark.parametrize("loss", [None, Loss.DROP, Loss.TORN_4096], ids=str)
def test_a_broker_finds_all_that_was_stored_after_a_halt(
    referee: Referee, tmp_path: Path, loss: Loss | None
) -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(ROOT)
    store = open_store(machine.seams, StoreFormat(referee.format))
    offsets: list[int] = []
    for step_ms in (DAY_MS, -DAY_MS, 0):
        for _ in range(COUNT):
            machine.scheduler.run_for(1)
            new = NewMessage(len(offsets), 200, 0, None)
            message = message_of(store, QUEUE, new, machine.clock.now_ms())
            offsets.append(put_message(store, message, Durability.SYNC).physical_offset)
        machine.clock.step(step_ms)
    assert [step.step_ms for step in store.clock.steps.view.steps] == [DAY_MS, -DAY_MS]
    disk = machine.disk.kill() if loss is None else machine.disk.power_cut(1, loss)
    disk.save(ROOT, tmp_path / "store")

    theirs = Dump.of(referee.dump(tmp_path / "store", rocketmq_settings(CONFIG)))

    assert theirs.recovered["path"] == "abnormal"
    assert [line["off"] for line in theirs.messages] == offsets
    assert [theirs.entries[QUEUE][n][0] for n in range(len(offsets))] == offsets
    found = {n: set(theirs.queries[QUEUE[0], f"u{n}"]) for n in range(len(offsets))}
    assert [n for n, off in enumerate(offsets) if found[n] != {off}] == []
