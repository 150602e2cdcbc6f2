"""A follower that dies at any point while it receives a leader's log in pieces of any length."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mqstore.storage.errors import StorageError
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.log_history import LogHistory, common_end
from tests.long_runs import examples, few_first
from tests.simulation.follower import BEFORE, LEADER, FollowerWorld, fork, leader_log
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


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, LEADERS - 1),
    common=st.sampled_from([0, 3, 60, 150]),
    received=st.integers(1, 100),
    crashes=st.lists(
        st.tuples(st.integers(0, 450), st.sampled_from([None, *Loss])), min_size=0, max_size=4
    ),
    is_closed=st.booleans(),
)
def test_a_diverged_tail_is_kept_in_quarantine_and_nothing_else_is_cut(
    seed: int,
    common: int,
    received: int,
    crashes: list[tuple[int, Loss | None]],
    is_closed: bool,
) -> None:
    found = fork(seed, common, 80)
    assume(found.cut_off.start == found.successor.start <= found.offset)
    world = FollowerWorld(found.cut_off, seed)
    world.store.epochs.adopt(LogHistory("log", BEFORE, 0, 0))
    while world.receiver.end < found.offset + received and world.receiver.end < found.cut_off.end:
        world.receive(2_000)
    world.acknowledge()
    end = world.store.log.max_offset
    assume(world.store.log.min_offset <= found.offset < end)
    offset = common_end(found.history, world.store.epochs.history)
    assert offset == found.offset
    world.store.epochs.cut_at_opening(offset, LEADER, 2)
    world.leader, world.acknowledged = found.successor, offset
    if is_closed:
        world.store.close()
    world.kill()
    store = world.open_over_crashes(crashes)
    assert store.log.max_offset == offset
    assert store.state.snapshot().flushed_offset == offset
    assert kept_bytes(store, offset, end) == found.cut_off.data[
        offset - found.cut_off.start : end - found.cut_off.start
    ].rstrip(b"\0")
    store.epochs.adopt(found.history)
    world.receive_all()
    world.check_equal()
    end_process(world, "close")
    world.check_equal()


@pytest.mark.parametrize("loss", few_first([None, Loss.PREFIX]))
def test_a_cut_that_ends_at_any_operation_is_repeated(loss: Loss | None) -> None:
    found = fork(2, 60, 80)
    for number in range(0, 420, 9):  # an opening has about 400
        world = FollowerWorld(found.cut_off, 1)
        world.store.epochs.adopt(LogHistory("log", BEFORE, 0, 0))
        world.receive_all()
        world.store.epochs.cut_at_opening(found.offset, LEADER, 2)
        world.store.close()
        world.leader, world.acknowledged = found.successor, found.offset
        world.kill()
        world.open_over_crashes([(number, loss)])
        assert world.store.log.max_offset == found.offset


def kept_bytes(store: MessageStore, start: int, end: int) -> bytes:
    """Bytes of the log between two offsets that quarantine has; zeros for the others."""
    files, quarantine = store._parts.seams.files, store._parts.quarantine
    found = bytearray(end - start)
    for entry in reversed(quarantine.entries()):  # the one that began first has most
        path = Path(entry.source)
        if path.parent.name != "commitlog":
            continue
        at = int(path.name) + entry.position - start
        data = files.read(quarantine.data(entry.name))
        if at >= 0 and any(data):
            kept = found[at : at + len(data)]
            found[at : at + len(data)] = bytes(a or b for a, b in zip(kept, data, strict=True))
    return bytes(found).rstrip(b"\0")
