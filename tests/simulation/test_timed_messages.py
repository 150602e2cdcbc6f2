"""Messages with a time of delivery over crashes: each that survives is delivered once, in time."""

from __future__ import annotations

import errno
import random
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss
from tests.simulation.test_delayed_messages import CRASHES, POOLED, SMALL, crashed
from tests.simulation.timed_store import TimedStore, small_wheel

ALL_DUE_S = 130.0
FARTHEST_MS = 100_000

wheel = pytest.fixture(autouse=True, scope="module")(small_wheel)


class Life:
    """Puts and waits, with restarts; every crash must keep what was acknowledged."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are looked at."""
        self.rng, self.chance = random.Random(seed), random.Random(seed + 1)
        self.examined = examined
        self.format = self.rng.choice(list(StoreFormat))
        self.config = POOLED if seed % 3 == 0 else SMALL
        self.world = TimedStore(seed, config=self.config, store_format=self.format)
        self.next_number = 0
        self.acknowledged: set[int] = set()
        self.durable: set[int] = set()
        self.states = 0
        self.found: AssertionError | None = None
        self.world.machine.disk.before_effect = self._crash_point

    def live(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._step()
            except (OSError, StorageError):
                if self.world.store.failure is None:
                    continue
            if self.world.store.failure is not None:
                self._restart(None)
        self.world.machine.disk.before_effect = None
        self.world.machine.disk.forgive()
        self.world.run(ALL_DUE_S)
        if self.found is not None:
            raise self.found
        if self.world.store.failure is None:
            check(self.world, self.acknowledged)

    def _step(self) -> None:
        world, rng = self.world, self.rng
        match rng.randrange(20):
            case 0 | 1:
                self._restart(rng.choice(CRASHES))
            case 2:
                with suppress(StorageError):
                    world.store.close()
                self._restart(None)
            case 3:
                disk = world.machine.disk
                number = len(disk.trace) + rng.randrange(60)
                disk.fail_at(number, rng.choice([errno.EIO, errno.ENOSPC]))
            case 4 | 5 | 6 | 7:
                world.run(rng.random() * 5)
            case 8:
                world.run(rng.random() * 50)
            case _:
                self._put()

    def _put(self) -> None:
        number, self.next_number = self.next_number, self.next_number + 1
        durability = self.rng.choice([Durability.SYNC, *[Durability.ASYNC] * 3])
        delay_ms = self.rng.randint(1, self.rng.choice([3_000, 20_000, FARTHEST_MS]))
        self.world.timed(number, delay_ms, durability)
        self.acknowledged.add(number)
        if durability is Durability.SYNC:
            self.durable = set(self.acknowledged)

    def _restart(self, loss: Loss | None) -> None:
        disk = crashed(self.world.machine.disk, loss, self.rng)
        try:
            self.world.restart(disk)
        except (OSError, StorageError):
            self.world.restart(disk.kill())
        self.acknowledged &= originals(self.world)
        self.durable = set(self.acknowledged)
        self.world.machine.disk.before_effect = self._crash_point

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        loss = self.chance.choice(CRASHES)
        disk: SimulatedDisk = crashed(self.world.machine.disk, loss, self.chance)
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        after = TimedStore(config=self.config, store_format=self.format, machine=machine)
        after.run(ALL_DUE_S)
        self.states += 1
        try:
            check(after, self.acknowledged if loss is None else self.durable)
        except AssertionError as error:
            self.found = error
            raise


def originals(world: TimedStore) -> set[int]:
    return {int(found.body) for found in world.waiting()}


def check(world: TimedStore, promised: set[int]) -> None:
    """Every message that is there was delivered, once and not before its time, and none that was
    promised is missing."""
    there = originals(world)
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
