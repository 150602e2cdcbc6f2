"""query sees that its writer stands still, by the beats that a writer makes each second."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.query.writer_state import STALL_S, WriterState, WriterWatch
from mqstore.storage import StoreReader
from mqstore.storage.host import production_seams
from tests.unit.storage.stores import open_store


@pytest.mark.parametrize("elected", [False, True])
def test_a_writer_that_makes_no_beat_is_unresponsive(tmp_path: Path, elected: bool) -> None:
    with open_store(tmp_path) as store, StoreReader.open(tmp_path, production_seams()) as reader:
        watch = WriterWatch(lambda: reader)

        def state_at(now: float) -> WriterState:
            watch.observe(now)
            assert watch.is_succeeded == (
                elected and watch.refresh() is WriterState.UNRESPONSIVE
            ), "another replica leads instead"
            return watch.refresh()

        assert {state_at(float(second)) for second in range(20)} == {WriterState.ALIVE}, (
            "a writer of an earlier release makes none"
        )
        store.state.beat(elected=elected)
        assert state_at(20.0) is WriterState.ALIVE
        assert state_at(20.0 + STALL_S - 1) is WriterState.ALIVE
        assert state_at(20.0 + STALL_S) is WriterState.UNRESPONSIVE
        store.state.beat(elected=elected)
        assert state_at(20.0 + STALL_S + 1) is WriterState.ALIVE
        assert state_at(20.0 + 3 * STALL_S) is WriterState.ALIVE, "this process was stopped too"
        assert state_at(20.0 + 4 * STALL_S) is WriterState.UNRESPONSIVE
    watch.observe(20.0 + 4 * STALL_S + 1)
    assert not watch.is_succeeded


def test_a_writer_that_ended_is_down(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.state.beat(elected=True)
    with StoreReader.open(tmp_path, production_seams()) as reader:
        watch = WriterWatch(lambda: reader)
        for second in range(20):
            watch.observe(float(second))
        assert watch.refresh() is WriterState.DOWN
        assert not watch.is_succeeded
