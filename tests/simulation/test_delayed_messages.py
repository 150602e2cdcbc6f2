"""Delayed messages over crashes: each that survives is delivered once, whatever was lost.

Wherever a crash would leave another state behind, some copies of the disk are opened, and run
until everything is due.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.delayed_store import CONFIG, DelayedStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_message

SMALL: Final = CONFIG.model_copy(
    update={"mapped_file_size_commit_log": 8 << 10, "flush_delay_offset_interval": 3_000}
)
POOLED: Final = SMALL.model_copy(update={"transient_store_pool_enable": True})
ALL_DUE_S: Final = 30.0
"""After which the last of the longest level is delivered, retries included."""
LEVELS: Final = range(1, 4)
CRASHES: Final = (None, *Loss)
"""A kill, and power cuts."""


class Life:
    """Puts and waits, with restarts; every crash must keep what was acknowledged."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are looked at."""
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.format = self.rng.choice(list(StoreFormat))
        self.config = POOLED if seed % 3 == 0 else SMALL
        self.world = DelayedStore(seed, config=self.config, store_format=self.format)
        self.next_number = 0
        self.acknowledged: set[int] = set()
        self.durable: set[int] = set()
        self.states = 0
        self.found: AssertionError | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self._begin()

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

    def _begin(self) -> None:
        self.world.machine.disk.before_effect = self._crash_point

    def _step(self) -> None:
        world, rng = self.world, self.rng
        match rng.randrange(20):
            case 0:
                self._restart(rng.choice(CRASHES))
            case 1:
                with suppress(StorageError):
                    world.store.close()
                self._restart(None)
            case 2:
                world.machine.clock.step(rng.randint(-5_000, 5_000))
            case 3:
                disk = world.machine.disk
                number = len(disk.trace) + rng.randrange(60)
                disk.fail_at(number, rng.choice([errno.EIO, errno.ENOSPC]))
            case 4 | 5 | 6 | 7:
                world.run(rng.random() * 3)
            case _:
                self._put()

    def _put(self) -> None:
        number, self.next_number = self.next_number, self.next_number + 1
        durability = self.rng.choice([Durability.SYNC, *[Durability.ASYNC] * 3])
        message = self.world.message(number, self.rng.choice(LEVELS))
        put_message(self.world.store, message, durability)
        self.acknowledged.add(number)
        if durability is Durability.SYNC:
            self.durable = set(self.acknowledged)

    def _restart(self, loss: Loss | None) -> None:
        disk = crashed(self.world.machine.disk, loss, self.rng)
        try:
            self.world.restart(disk)
        except (OSError, StorageError):
            self.world.restart(disk.kill())
        self.acknowledged &= set(originals(self.world))
        self.durable = set(self.acknowledged)
        self._begin()

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        loss = self.chance.choice(CRASHES)
        disk = crashed(self.world.machine.disk, loss, self.chance)
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        after = DelayedStore(config=self.config, store_format=self.format, machine=machine)
        after.run(ALL_DUE_S)
        self.states += 1
        try:
            check(after, self.acknowledged if loss is None else self.durable)
        except AssertionError as error:
            self.found = error
            raise


def crashed(disk: SimulatedDisk, loss: Loss | None, rng: random.Random) -> SimulatedDisk:
    return disk.kill() if loss is None else disk.power_cut(rng.getrandbits(32), loss)


def originals(world: DelayedStore) -> list[int]:
    return [int(found.body) for level in LEVELS for found in world.pending(level)]


def check(world: DelayedStore, promised: set[int]) -> None:
    """Every delayed message that is there was delivered, once, and none that was promised is
    missing."""
    there = set(originals(world))
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
