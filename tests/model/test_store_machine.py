"""A state machine draws operations on the store; after any of them the plain model is right."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from tests.long_runs import examples
from tests.simulation.driver import KEYS, QUEUES, TOPICS, TYPES, Driver, NewMessage
from tests.simulation.inode import Loss
from tests.simulation.invariants import Checker
from tests.simulation.world import World

durabilities = st.sampled_from(Durability)
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, QUEUES - 1))
sizes = st.one_of(st.integers(10, 300), st.integers(10, 3_500))
shapes = st.tuples(sizes, st.integers(0, KEYS - 1), st.sampled_from([None, "a", "b"]))


STEPS_OF_EXAMPLE = 100
"""Steps of one store in the longer runs."""


class StoreMachine(RuleBasedStateMachine):
    """Each rule is one thing that may happen to a store."""

    steps = 0
    """Steps of all machines of this process together."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)
        self.next_number = 0

    @initialize(seed=st.integers(0, 2**32), store_format=st.sampled_from(StoreFormat))
    def begin(self, seed: int, store_format: StoreFormat) -> None:
        self.world = World(seed, store_format)
        self.world.open()

    @property
    def driver(self) -> Driver:
        assert self.world.driver is not None
        return self.world.driver

    def new(self, shape: tuple[int, int, str | None], kind: int = 0) -> NewMessage:
        self.next_number += 1
        size, key, tag = shape
        return NewMessage(self.next_number, size, key, tag, kind)

    # what clients do

    @rule(place=places, shape=shapes, kind=st.sampled_from(TYPES), durability=durabilities)
    def put(
        self,
        place: tuple[str, int],
        shape: tuple[int, int, str | None],
        kind: int,
        durability: Durability,
    ) -> None:
        self.world.attempt(lambda: self.driver.put(place, [self.new(shape, kind)], durability))

    @rule(
        queue_id=st.integers(0, QUEUES - 1),
        batch=st.lists(shapes, min_size=2, max_size=8),
        durability=durabilities,
    )
    def put_batch(
        self, queue_id: int, batch: list[tuple[int, int, str | None]], durability: Durability
    ) -> None:
        messages = [self.new(shape) for shape in batch]
        self.world.attempt(lambda: self.driver.put(("T", queue_id), messages, durability))

    @rule(place=places, count=st.integers(30, 60))
    def put_until_it_rolls(self, place: tuple[str, int], count: int) -> None:
        for _ in range(count):
            self.put(place, (400, 1, None), 0, Durability.ASYNC)

    @rule(number=st.integers(0, 3), queues=st.integers(1, 9))
    def create_topic(self, number: int, queues: int) -> None:
        self.world.attempt(lambda: self.driver.create_topic(f"made{number}", queues))

    @rule(place=places, part=st.integers(0, 999))
    def consume(self, place: tuple[str, int], part: int) -> None:
        self.world.attempt(lambda: self.driver.consume(place, part))

    # what the store does

    @rule()
    def flush(self) -> None:
        self.world.attempt(self.driver.flush)

    @rule()
    def flush_later(self) -> None:
        self.world.attempt(self.driver.flush_later)

    @rule(count=st.integers(1, 2))
    def expire(self, count: int) -> None:
        self.world.attempt(lambda: self.driver.expire(count))

    @rule(seconds=st.floats(0, 90))
    def time_passes(self, seconds: float) -> None:
        self.world.attempt(lambda: self.world.scheduler.run_for(seconds))

    # what befalls it

    @rule(milliseconds=st.integers(-100_000, 100_000))
    def clock_steps(self, milliseconds: int) -> None:
        self.world.clock.step(milliseconds)

    @rule(
        within=st.integers(0, 60),
        error=st.sampled_from([errno.EIO, errno.ENOSPC]),
        short=st.booleans(),
    )
    def disk_fails_soon(self, within: int, error: int, short: bool) -> None:
        disk = self.world.disk
        disk.fail_at(len(disk.trace) + within, error, short=short)

    @rule()
    def crash(self) -> None:
        self.world.kill()
        self.recover()

    @rule(loss=st.sampled_from(Loss))
    def lose_power(self, loss: Loss) -> None:
        self.world.lose_power(loss)
        self.recover()

    @rule()
    def close(self) -> None:
        try:
            self.world.close()
        except (OSError, StorageError):
            self.world.kill()
        self.recover()

    @rule(seed=st.integers(0, 2**16))
    def read(self, seed: int) -> None:
        """Everything at once: each byte, queue, index item, and some look-ups of each kind."""
        world = self.world
        world.disk.forgive()
        world.attempt(world.store.wait_for_index)
        rng = random.Random(seed)
        checker = Checker(world.store, world.model, world.seams, rng, torn=False)
        checker.check(world.model.end)

    @invariant()
    def bounds_are_in_order(self) -> None:
        StoreMachine.steps += 1
        log = self.world.store.log
        assert max(log.min_offset, log.flushed_offset) <= log.max_offset
        assert self.world.store.dispatcher.position <= log.max_offset

    def recover(self) -> None:
        """Held against the model by the world itself."""
        self.world.disk.forgive()
        self.world.open()

    def teardown(self) -> None:
        if self.world.driver is not None:  # else a rule failed while it recovered
            self.world.restart_if_failed()
            self.read(0)


def test_the_store_is_what_the_model_says() -> None:
    """The same steps in each run; others are for the night."""
    run_state_machine_as_test(
        seed(1)(StoreMachine),
        settings=settings(max_examples=examples(8), stateful_step_count=50, database=None),
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_the_store_is_what_the_model_says_for_2_000_steps(part: int) -> None:
    """Parts, so that they spread over the cores; the same steps in each run."""
    run_steps(count(part * 1_000), 1_000)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(5))
def test_the_store_is_what_the_model_says_for_50_000_other_steps(part: int) -> None:
    """New steps in each run; hypothesis prints how to see a failure again."""
    run_steps(count(random.SystemRandom().randrange(10**9)), 10_000)


def run_steps(seeds: Iterator[int], steps: int) -> None:
    """At least so many steps, each seed 5,000 of them at most."""
    before = StoreMachine.steps
    while (left := steps - (StoreMachine.steps - before)) > 0:
        examples = min(50, -(-left // STEPS_OF_EXAMPLE))
        run_state_machine_as_test(
            seed(next(seeds))(type("Seeded", (StoreMachine,), {})),
            settings=settings(
                max_examples=examples, stateful_step_count=STEPS_OF_EXAMPLE, database=None
            ),
        )
