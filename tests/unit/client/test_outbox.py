"""Messages of a producer form requests in their order, within bounds."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.client import NewMessage, ProblemError, Unreachable
from mqstore.client.outbox import BATCH_BYTES_MAX, Lane, Outgoing, Room, divide

LATER_S = 60


def outgoing(**fields: Any) -> Outgoing:
    return Outgoing("t", NewMessage(**fields), Future(), 0.0)


def filled(*messages: Outgoing) -> Lane:
    lane = Lane()
    for each in messages:
        lane.add(each)
    return lane


def problem(status: int, **members: Any) -> ProblemError:
    return ProblemError(status, members)


def test_a_lane_is_of_one_topic_queue_and_kind() -> None:
    plain, queued, ordered = (
        outgoing(),
        outgoing(queue_id=1),
        outgoing(ordering_key="a"),
    )
    assert len({plain.lane, queued.lane, ordered.lane, outgoing(ordering_key="b").lane}) == 3


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, BATCH_BYTES_MAX)), max_size=20),
    st.integers(1, 5),
)
def test_requests_keep_the_order_and_their_bounds(
    given_ones: list[tuple[bool, int]], batch_max: int
) -> None:
    messages = [
        outgoing(body="x" * (size // 10_000 * 10_000), uniq_key="k" if is_keyed else None)
        for is_keyed, size in given_ones
    ]
    lane, taken = filled(*messages), []
    while len(lane):
        batch = lane.take(batch_max)
        assert 1 <= len(batch) <= batch_max
        assert len({each.is_keyed for each in batch}) == 1
        assert len(batch) == 1 or sum(each.size for each in batch) <= BATCH_BYTES_MAX
        taken += batch
    assert taken == messages


def test_a_lane_is_full_with_a_whole_request() -> None:
    assert not filled(outgoing()).is_full(2)
    assert filled(outgoing(), outgoing()).is_full(2)
    lane = filled(outgoing(body="x" * BATCH_BYTES_MAX))
    assert lane.is_full(2)
    lane.take(2)
    assert not lane.is_full(2)


def test_room_is_bounded_by_messages_and_by_bytes() -> None:
    room = Room(2, 100)
    assert [room.take(10), room.take(91), room.take(90), room.take(0)] == [True, False, True, False]
    room.release(10)
    assert room.take(10)
    assert Room(2, 100).take(1_000)  # it has all the room alone


def test_a_wait_for_room_ends_with_a_release() -> None:
    room = Room(1, 100)
    assert room.take(1)
    waiting = threading.Thread(target=room.wait, args=(1,))
    waiting.start()
    room.release(1)
    waiting.join(LATER_S)
    assert not waiting.is_alive()
    assert not room.take(1)


def test_a_problem_with_an_index_is_that_of_one_message() -> None:
    batch = [outgoing() for _ in range(4)]
    found = divide(batch, problem(422, index=1))
    assert (found.failed, found.rest) == ([batch[1]], [[batch[0], *batch[2:]]])
    assert divide(batch[:1], problem(422, index=0)) == (batch[:1], [])


def test_a_request_that_is_too_large_is_sent_in_halves() -> None:
    batch = [outgoing() for _ in range(5)]
    too_large = problem(413, type="urn:mqstore:problem:body-too-large")
    assert divide(batch, too_large) == ([], [batch[:2], batch[2:]])
    assert divide(batch[:1], too_large) == (batch[:1], [])


@pytest.mark.parametrize(
    "error", [Unreachable("x"), ValueError("x"), problem(404), problem(422, index=9)]
)
def test_all_messages_fail_with_any_other_error(error: Exception) -> None:
    batch = [outgoing() for _ in range(3)]
    assert divide(batch, error) == (batch, [])


def test_a_message_can_be_cancelled_until_it_is_sent() -> None:
    cancelled, sent = outgoing(), outgoing()
    assert cancelled.future.cancel()
    assert (cancelled.begin(), sent.begin()) == (False, True)
    assert not sent.future.cancel()
    sent.settle(None, ValueError("x"))
    cancelled.settle(None, ValueError("x"))
    assert isinstance(sent.future.exception(), ValueError)
