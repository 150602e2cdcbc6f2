"""A follower that dies at any point while it receives a leader's log in pieces of any length."""

from __future__ import annotations

import errno

from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.errors import StorageError
from tests.long_runs import examples
from tests.simulation.follower import FollowerWorld, leader_log
from tests.simulation.inode import Loss

LEADERS = 4
"""Number of the leaders' logs, of other settings and formats."""
PIECES = st.sampled_from([1, 7, 90, 700, 5_000, 40_000])
EVENTS = st.sampled_from(["kill", "close", "sync", "restart", *Loss, *(["receive"] * 12)])


def end_process(world: FollowerWorld, event: str) -> None:
    if event == "close":
        world.store.close()
    if event in list(Loss):
        world.lose_power(Loss(event))
    else:
        world.kill()
    world.open()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, LEADERS - 1),
    steps=st.lists(st.tuples(EVENTS, PIECES), min_size=1, max_size=60),
)
def test_a_follower_has_the_leaders_bytes_queues_and_index_whatever_ends_it(
    seed: int, steps: list[tuple[str, int]]
) -> None:
    world = FollowerWorld(leader_log(seed, 150), seed)
    for event, length in steps:
        if event == "receive":
            world.receive(length)
        elif event == "sync":
            world.acknowledge()
        elif event == "restart":
            world.receiver.restart()
        else:
            end_process(world, event)
    world.receive_all()
    world.check_equal()
    end_process(world, "close")
    world.check_equal()


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, LEADERS - 1), number=st.integers(0, 400), short=st.booleans())
def test_a_follower_goes_on_after_a_fault_of_its_disk(seed: int, number: int, short: bool) -> None:
    world = FollowerWorld(leader_log(seed, 150), seed)
    error = errno.EIO if number % 2 else errno.ENOSPC
    world.machine.disk.fail_at(len(world.machine.disk.trace) + number, error, short=short)
    try:
        while world.receiver.offset < world.leader.end:
            world.receive(5_000)
            world.acknowledge()
    except (OSError, StorageError):
        world.machine.disk.forgive()
        if world.store.failure is not None or number % 3:
            end_process(world, "kill")
    world.receive_all()
    world.check_equal()
