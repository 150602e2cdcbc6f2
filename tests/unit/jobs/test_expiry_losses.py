"""Losses of readers are the same from counts as from single messages."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mqstore.jobs.expiry.counts import NOT_QUEUED, Count
from mqstore.jobs.expiry.losses import Places, holds, losses
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import SCHEDULE_TOPIC
from mqstore.storage.retention.holds import Hold
from tests.unit.jobs.expiry_examples import ANY_HOUR, HOUR_MS, NOW_MS, facts

OFFSETS = st.dictionaries(st.integers(0, 2), st.integers(0, 12), max_size=3)
CONSUMED = st.dictionaries(
    st.tuples(st.sampled_from(["g", "h", "i"]), st.sampled_from(["T", "U"])), OFFSETS, max_size=5
)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["T", "U", "V"]), st.integers(0, 2), st.integers(0, 12))
)


def past(places: Places, topic: str, queue_id: int, offset: int) -> int:
    """As Spark counts it."""
    return sum(mark <= offset for mark in places.marks.get((topic, queue_id), []))


def count(topic: str, queue_id: int, past: int, **more: int | None) -> Count:
    given = {"messages": 1, "bytes": 10, "oldest_ms": NOW_MS, "newest_ms": NOW_MS, **more}
    return Count(topic=topic, queue_id=queue_id, past=past, **given)  # type: ignore[arg-type]  # optional numbers


@given(CONSUMED, MESSAGES)
def test_every_group_loses_the_messages_at_its_offset_and_after(
    consumed: dict[tuple[str, str], dict[int, int]], messages: list[tuple[str, int, int]]
) -> None:
    known = facts(consumed=consumed)
    places = Places.of(known)
    counts = [count(t, q, past(places, t, q, offset)) for t, q, offset in messages]
    found = {key[3:]: loss.messages for key, loss in losses(known, places, counts).items()}
    assert found == Counter(
        (group, topic)
        for (group, topic), offsets in consumed.items()
        for t, q, offset in messages
        if t == topic and offset >= offsets.get(q, 0)
    )


def test_a_message_without_a_queue_entry_is_no_loss() -> None:
    known = facts(consumed={("g", "T"): {}})
    assert losses(known, Places.of(known), [count("T", 0, NOT_QUEUED)]) == {}


def test_offsets_of_decided_transactions_are_no_consumers() -> None:
    known = facts(consumed={("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"): {0: 1}})
    counted = [count("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)]
    assert losses(known, Places.of(known), counted) == {}


def delayed(goes_in_h: int, stored_h_ago: float) -> bool:
    """Whether a message of level 18, two hours, counts as lost."""
    known = facts(delivered={18: 5})
    stored_ms = NOW_MS - round(stored_h_ago * HOUR_MS)
    counted = count(
        SCHEDULE_TOPIC,
        17,
        1,
        oldest_ms=stored_ms,
        newest_ms=stored_ms,
        goes_ms=NOW_MS + goes_in_h * HOUR_MS,
    )
    return bool(losses(known, Places.of(known), [counted]))


def test_an_undelivered_message_is_lost_if_it_goes_before_it_is_due() -> None:
    assert delayed(goes_in_h=1, stored_h_ago=0)
    assert not delayed(goes_in_h=3, stored_h_ago=0)


def test_an_undelivered_message_that_is_overdue_may_be_lost_whenever_it_goes() -> None:
    assert delayed(goes_in_h=100, stored_h_ago=3)


def test_a_delivered_message_is_no_loss() -> None:
    known = facts(delivered={18: 5})
    counted = [count(SCHEDULE_TOPIC, 17, 0, goes_ms=NOW_MS)]
    assert losses(known, Places.of(known), counted) == {}


KEPT = StoreConfig(keep_for_groups="g; never", delete_when=ANY_HOUR)


def test_groups_that_are_kept_for_and_undelivered_messages_hold_from_their_first_one_on() -> None:
    pin = Hold(kind="pin", name="p", from_offset=1, to_offset=2, until_ms=None)
    consumed = {("g", "T"): {0: 3}, ("other", "T"): {0: 0}}
    known = facts(consumed=consumed, delivered={1: 2}, config=KEPT, pins=[pin])
    counts = [
        count("T", 0, 1, first_offset=100),
        count("T", 0, 2, first_offset=500),
        count("T", 0, 2, first_offset=400),
        count(SCHEDULE_TOPIC, 0, 1, first_offset=700),
    ]
    found = holds(known, Places.of(known), counts)
    losses = [(each.kind, each.name, each.from_offset) for each in found]
    assert losses == [
        ("pin", "p", 1),
        ("delay", "1", 700),
        ("group", "g", 400),
        ("group", "never", 0),
    ]


def test_a_broker_honours_no_hold() -> None:
    known = facts(consumed={("g", "T"): {}}, config=KEPT, honours_holds=False)
    assert holds(known, Places.of(known), [count("T", 0, 0)]) == []
