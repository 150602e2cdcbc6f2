"""The table of next queue offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.log.queue_offsets import QueueOffsets

QUEUES = st.tuples(st.sampled_from(["a", "b", "%LMQ%a", "%LMQ%b"]), st.integers(0, 2))


def test_a_queue_never_seen_begins_at_zero() -> None:
    assert QueueOffsets().next("topic", 3) == 0


def test_queues_of_one_topic_count_apart() -> None:
    offsets = QueueOffsets()
    offsets.advance("topic", 0, 2)
    offsets.advance("topic", 1)
    assert (offsets.next("topic", 0), offsets.next("topic", 1)) == (2, 1)


def test_a_recovered_queue_goes_on_where_it_ended() -> None:
    offsets = QueueOffsets()
    offsets.set("topic", 0, 427)
    offsets.advance("topic", 0)
    assert offsets.next("topic", 0) == 428


def test_load_forgets_what_was_there() -> None:
    offsets = QueueOffsets()
    offsets.advance("%LMQ%old", 0)
    offsets.load([("topic", 0, 7), ("%LMQ%new", 0, 2)])
    assert offsets.as_dict() == {("topic", 0): 7, ("%LMQ%new", 0): 2}
    assert offsets.lmq_queues == 1


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        QueueOffsets().set("topic", 0, -1)


def test_a_removed_queue_begins_at_zero_again() -> None:
    offsets = QueueOffsets()
    offsets.set("%LMQ%a", 0, 9)
    offsets.remove("%LMQ%a", 0)
    offsets.remove("%LMQ%a", 0)
    assert (offsets.next("%LMQ%a", 0), offsets.lmq_queues) == (0, 0)


@given(st.lists(st.tuples(QUEUES, st.integers(1, 5))))
def test_every_queue_counts_what_was_placed_in_it(
    placed: list[tuple[tuple[str, int], int]],
) -> None:
    offsets = QueueOffsets()
    expected: dict[tuple[str, int], int] = {}
    for queue, count in placed:
        assert offsets.next(*queue) == expected.get(queue, 0)
        offsets.advance(*queue, count)
        expected[queue] = expected.get(queue, 0) + count
    assert offsets.as_dict() == expected
    assert offsets.lmq_queues == sum(topic.startswith("%LMQ%") for topic, _ in expected)
