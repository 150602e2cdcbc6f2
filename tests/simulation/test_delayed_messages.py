"""Delayed messages over crashes: each that survives is delivered once, whatever was lost.

Wherever a crash would leave another state behind, some copies of the disk are opened, and run
until everything is due.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.message_store import Durability
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import lives_of_delays
from tests.simulation.crashes import crashed
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.inode import Loss
from tests.simulation.lives_of_delays import SMALL
from tests.unit.storage.puts import put_message

ALL_DUE_S: Final = 30.0
LEVELS: Final = range(1, 4)


class Life(lives_of_delays.Life[DelayedStore]):
    """A life with messages of delay levels, and steps of the clock."""

    world_type = DelayedStore
    all_due_s = ALL_DUE_S

    def act(self, number: int) -> None:
        match number:
            case 0:
                self.crash()
            case 1:
                self.close()
            case 2:
                self.world.machine.clock.step(self.rng.randint(-5_000, 5_000))
            case 3:
                self.fail_disk()
            case 4 | 5 | 6 | 7:
                self.world.run(self.rng.random() * 3)
            case _:
                self.put()

    def put_message(self, number: int, durability: Durability) -> None:
        message = self.world.message(number, self.rng.choice(LEVELS))
        put_message(self.world.store, message, durability)

    def originals(self, world: DelayedStore) -> set[int]:
        return {int(found.body) for level in LEVELS for found in world.pending(level)}

    def check(self, world: DelayedStore, promised: set[int]) -> None:
        """Every delayed message that is there was delivered, once, and none that was promised is
        missing."""
        there = self.originals(world)
        copies = Counter(world.delivered())
        again = [number for number, count in copies.items() if count > 1]
        assert promised <= there, f"lost before their time: {promised - there}"
        assert there <= copies.keys(), f"never delivered: {there - copies.keys()}"
        assert not again, f"delivered again: {again}"
        assert all(not each.pending for each in world.store.delays.status())


@pytest.mark.parametrize("seed", few_first([1, 2, 3]))
def test_after_any_crash_each_message_is_delivered_once(seed: int) -> None:
    life = Life(seed, examined=0.1)
    life.live(60)
    assert life.states > 10


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_each_message_is_delivered_once(seed: int) -> None:
    Life(seed).live(60)


@pytest.mark.slow
@settings(max_examples=nightly_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_each_message_is_delivered_once(seed: int) -> None:
    Life(seed, examined=0.05).live(200)


@pytest.mark.parametrize("loss", [None, Loss.DROP])
def test_a_levels_order_holds_over_a_crash(loss: Loss | None) -> None:
    world = DelayedStore(config=SMALL)
    for number in range(30):
        world.put(number, 1)
        world.run(0.1)
    world.store.flush.flush_all()
    world.restart(crashed(world.machine.disk, loss, random.Random(1)))
    world.run(ALL_DUE_S)
    assert world.delivered() == list(range(30))
