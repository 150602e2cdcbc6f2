"""Situations that random work meets seldom: each place of the recovery is one to crash again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count, product

import pytest

from mqstore.storage.errors import StorageError
from mqstore.storage.message_store import Durability
from tests.long_runs import sampled_step
from tests.simulation.crash_states import Crash, examine
from tests.simulation.driver import NewMessage
from tests.simulation.inode import Loss
from tests.simulation.world import World

pytestmark = pytest.mark.slow

SEEDS = (0, 2)
"""By seed % 8 a store without and with a TransientStorePool."""


def at_work(seed: int) -> World:
    """Some segments of it are durable."""
    world = World(seed)
    world.open()
    put(world, 30, Durability.ASYNC)
    put(world, 1, Durability.SYNC)
    return world


def put(world: World, messages: int, durability: Durability) -> None:
    assert world.driver is not None
    for number in range(messages):
        queue = ("T", number % 2)
        world.driver.put(queue, [NewMessage(world.model.end, 400, 1, None)], durability)


def fail_a_sync(world: World, *, short: bool = False) -> None:
    """Fail a sync and kill the process: the data stays only in the page cache."""
    put(world, 20, Durability.ASYNC)
    world.disk.fail_next("sync", errno.EIO, short=short)
    with pytest.raises(StorageError):
        put(world, 1, Durability.SYNC)
    world.kill()


def fail_half_a_sync(world: World) -> None:
    fail_a_sync(world, short=True)


def fail_a_commit(world: World) -> None:
    """Half of the bytes get to the page cache, where a pool stands before it."""
    put(world, 10, Durability.ASYNC)
    world.disk.fail_next("write_through", errno.ENOSPC, short=True)
    try:
        put(world, 5, Durability.ASYNC)
    except StorageError:
        assert world.config.transient_store_pool_enable
    world.kill()


def lose_segments(world: World) -> None:
    """Several that were not synced, in part."""
    put(world, 90, Durability.ASYNC)
    world.lose_power(Loss.TORN_4096)


SITUATIONS: dict[str, Callable[[World], None]] = {
    "failed sync": fail_a_sync,
    "half a failed sync": fail_half_a_sync,
    "half a commit": fail_a_commit,
    "lost segments": lose_segments,
}


@pytest.mark.parametrize(
    ("situation", "seed"),
    [
        *product(list(SITUATIONS)[:-1], SEEDS),
        ("lost segments", SEEDS[0]),
        pytest.param("lost segments", SEEDS[1], marks=pytest.mark.nightly),
    ],
)
def test_a_recovery_that_is_cut_off_promises_nothing(situation: str, seed: int) -> None:
    """Killed or without power at any place; what the next one acknowledges is durable.

    ``make nightly`` crashes at every place, the others at each ninth or sixth one: over these,
    too, the ways to crash and their seeds vary.
    """
    step = sampled_step(9 if situation == "lost segments" else 6)
    world = at_work(seed)
    SITUATIONS[situation](world)
    numbers, broken = count(), []

    def crash() -> None:
        number = next(numbers)
        if number % step:
            return
        crash = list(Crash)[number % len(Crash)]
        try:
            examine(world, Crash.KILL, 2 * number)
            examine(world, crash, number)
        except Exception as error:  # the store would take it for a failing disk
            broken.append(f"place {number}, {crash}: {error!r}")

    world.on_crash_point = crash
    world.open()
    assert not broken
    assert next(numbers) > 10
