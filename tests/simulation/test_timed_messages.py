"""Messages with a time of delivery over crashes: each that survives is delivered once, in time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.message_store import Durability
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import lives_of_delays
from tests.simulation.timed_store import TimedStore, small_wheel

FARTHEST_MS: Final = 100_000

wheel = pytest.fixture(autouse=True, scope="module")(small_wheel)


class Life(lives_of_delays.Life[TimedStore]):
    """A life with messages that name their times, steps of the clock by up to more than a turn of
    the wheel, and waits as long as the farthest of them."""

    world_type = TimedStore
    all_due_s = 130.0  # and as long as the clock was set back

    def act(self, number: int) -> None:
        match number:
            case 0 | 1:
                self.crash()
            case 2:
                self.close()
            case 3:
                self.fail_disk()
            case 4 | 5 | 6 | 7:
                self.world.run(self.rng.random() * 5)
            case 8:
                self.world.run(self.rng.random() * 50)
            case 9:
                step_s = self.rng.choice([5, 60, 256, 600]) * self.rng.uniform(-1, 1)
                self.world.machine.clock.step(round(step_s * 1000))
                self.all_due_s += max(0.0, -step_s)
            case _:
                self.put()

    def put_message(self, number: int, durability: Durability) -> None:
        delay_ms = self.rng.randint(1, self.rng.choice([3_000, 20_000, FARTHEST_MS]))
        self.world.timed(number, delay_ms, durability)

    def originals(self, world: TimedStore) -> set[int]:
        return {int(found.body) for found in world.waiting()}

    def check(self, world: TimedStore, promised: set[int]) -> None:
        """Every message that is there was delivered, once and not before its time, and none that
        was promised is missing."""
        there = self.originals(world)
        copies = Counter(world.delivered())
        again = [number for number, count in copies.items() if count > 1]
        early = [each for each in world.arrivals() if each[2] < each[1]]
        assert promised <= there, f"lost before their time: {promised - there}"
        assert there <= copies.keys(), f"never delivered: {there - copies.keys()}"
        assert not again, f"delivered again: {again}"
        assert not early, f"early: {early}"
        assert world.store.delays.timer.status().pending == 0


@pytest.mark.parametrize("seed", few_first([1, 2, 3]))
def test_after_any_crash_each_timed_message_is_delivered_once(seed: int) -> None:
    life = Life(seed, examined=0.05)
    life.live(60)
    assert life.states > 10


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_each_timed_message_is_delivered_once(seed: int) -> None:
    Life(seed).live(60)


@pytest.mark.slow
@settings(max_examples=nightly_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_each_timed_message_is_delivered_once(seed: int) -> None:
    Life(seed, examined=0.03).live(200)
