"""Recovery of a store whose clock was set back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.seams import Clock
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.stores import (
    CONFIG,
    abandon,
    all_bodies,
    bodies,
    open_store,
    put_some,
)


def as_left_by_a_broker(root: Path) -> Path:
    shutil.rmtree(root / "mqstore")
    return root


def test_a_clock_that_was_set_back_cuts_nothing_and_times_follow_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    seams = production_seams()
    later = replace(seams, clock=ShiftedClock(seams.clock, 3_600_000))
    store = MessageStore.open(root, CONFIG, later, StoreOptions())
    put_some(store, 300)
    newest = store.log.last_store_timestamp_ms
    abandon(store)
    as_left_by_a_broker(root)
    with open_store(root) as store:
        assert store.recovery.plan.cut_bytes == 0
        put_some(store, 300, start=300)
        assert bodies(store) == all_bodies(600)
        [step] = store.clock.steps.view.steps
        assert (step.offset, step.is_measured) == (store.recovery.plan.max_offset, False)
        assert -3_660_000 < step.step_ms < -3_540_000
        stamped = store.lookups.records("T", 0, 150, 1).records[0].store_timestamp_ms
        assert stamped < newest - 3_000_000


class ShiftedClock:
    def __init__(self, clock: Clock, shift_ms: int) -> None:
        self._clock = clock
        self._shift_ms = shift_ms
        self.monotonic = clock.monotonic

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._shift_ms
