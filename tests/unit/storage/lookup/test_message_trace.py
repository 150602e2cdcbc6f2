"""Traces of messages: their copies as RocketMQ writes them, and the groups past them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage._kernel import Placement
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import KeyUnknown, RecordError
from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
    StoreFormat,
)
from mqstore.storage.lookup.message_trace import CopyKind, CopyState, MessageTraces, Trace
from mqstore.storage.lookup.record_place import RecordPlaces
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets, DelayOffsets
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import open_store

SEAMS = production_seams()
RETRY, DEAD = "%RETRY%g", "%DLQ%g"
KEY = "U1"
TOPICS = ("T", RETRY, DEAD, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TIME_TOPIC)
BODY_AT = 100
"""Position of the body in a record."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path) as found:
        found.create_topic("T", queues=1)
        yield found


def _put(store: MessageStore, topic: str = "T", key: str = KEY, **more: str) -> Placement:
    encoded = properties.encode(
        {"UNIQ_KEY": key, "KEYS": "order-1", **more}, trailing_separator=False
    )
    return put_message(store, Message(topic, 0, b"x" * 50, encoded, store.host, store.host, 1))


def _traces(store: MessageStore, *, delayed: dict[int, int] | None = None) -> MessageTraces:
    """As a reader of the same directory finds them."""
    store.offsets.save()
    reader = StoreReader.open(store.paths.root, SEAMS)
    tables = store.paths, StoreFormat.V4_9, SEAMS
    delays = DelayOffsets.load(*tables)
    for level, offset in (delayed or {}).items():
        delays.put(level, offset)
    offsets = ConsumerOffsets.load(*tables)
    places: RecordPlaces = reader.places
    return MessageTraces(reader.lookups, places, offsets, delays, lambda: TOPICS)


def _trace(store: MessageStore, key: str = KEY) -> Trace:
    return _traces(store).by_unique_key("T", key)


def _copies(trace: Trace) -> list[tuple[CopyKind, CopyState, int]]:
    return [(each.kind, each.state, each.record.physical_offset) for each in trace.copies]


def test_message_stands_in_its_queue_and_groups_are_past_it_or_not(store: MessageStore) -> None:
    placed = _put(store)
    _put(store, key="U2")
    store.offsets.commit("past", [Commit("T", 0, 1)])
    store.offsets.commit("before", [Commit("T", 0, 0)])
    store.create_topic("other", queues=1)
    store.offsets.commit("unrelated", [Commit("other", 0, 0)])
    trace = _trace(store)
    assert _copies(trace) == [(CopyKind.MESSAGE, CopyState.STORED, placed.physical_offset)]
    (copy,) = trace.copies
    assert [(each.group, each.committed, each.has_passed) for each in copy.stands] == [
        ("before", 0, False),
        ("past", 1, True),
    ]
    assert copy.place is not None
    assert trace.complete


def test_group_without_an_offset_in_the_queue_is_not_past_it(store: MessageStore) -> None:
    store.create_topic("T", queues=2)
    store.offsets.commit("g", [Commit("T", 1, 0)])
    _put(store)
    (stand,) = _trace(store).copies[0].stands
    assert (stand.committed, stand.has_passed) == (None, False)


def test_retries_and_dead_letters_are_of_the_topic_they_were_first_in(store: MessageStore) -> None:
    store.offsets.commit("g", [Commit("T", 0, 0)])
    first = _put(store)
    waits = _put(store, RETRY, RETRY_TOPIC="T", DELAY="18")
    again = _put(store, RETRY, RETRY_TOPIC="T")
    dead = _put(store, DEAD, RETRY_TOPIC="T")
    _put(store, RETRY, RETRY_TOPIC="U")
    trace = _trace(store)
    assert _copies(trace) == [
        (CopyKind.MESSAGE, CopyState.STORED, first.physical_offset),
        (CopyKind.DELAYED, CopyState.DELIVERED, waits.physical_offset),
        (CopyKind.RETRY, CopyState.STORED, again.physical_offset),
        (CopyKind.DEAD_LETTER, CopyState.STORED, dead.physical_offset),
    ]
    assert [each.group for each in trace.copies] == [None, "g", "g", "g"]
    by_record = _traces(store).of(store.lookups.by_physical_offset(dead.physical_offset))
    assert _copies(by_record) == _copies(trace)


def test_retry_that_is_delayed_once_more_waits(store: MessageStore) -> None:
    _put(store)
    _put(store, RETRY, RETRY_TOPIC="T", DELAY="17")
    _put(store, RETRY, RETRY_TOPIC="T")
    _put(store, RETRY, RETRY_TOPIC="T", DELAY="18")
    states = [each.state for each in _trace(store).copies if each.kind is CopyKind.DELAYED]
    assert states == [CopyState.DELIVERED, CopyState.WAITING]


def test_delayed_message_says_when_it_is_due(store: MessageStore) -> None:
    _put(store, DELAY="18")
    (copy,) = _trace(store).copies
    assert (copy.kind, copy.state) == (CopyKind.DELAYED, CopyState.WAITING)
    assert copy.due_ms == copy.record.store_timestamp_ms + 2 * 3_600_000
    assert copy.stands == []


@pytest.mark.parametrize(
    ("given", "due_ms"),
    [
        ({"TIMER_DELIVER_MS": "4000000000500", "TIMER_OUT_MS": "4000000000000"}, 4000000000500),
        ({"TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "4000000000000"}, 4000000000000),
        ({"TIMER_DELIVER_MS": "soon", "TIMER_OUT_MS": "later"}, None),
    ],
)
def test_a_timed_message_says_when_it_is_due(
    store: MessageStore, given: dict[str, str], due_ms: int | None
) -> None:
    _put(store, TIMER_TOPIC, REAL_TOPIC="T", REAL_QID="0", **given)
    (copy,) = _trace(store).copies
    assert (copy.kind, copy.state) == (CopyKind.DELAYED, CopyState.WAITING)
    assert copy.due_ms == due_ms


def test_a_delayed_message_without_its_copy_has_the_state_that_the_levels_progress_proves(
    store: MessageStore,
) -> None:
    _put(store, DELAY="18")
    (copy,) = _traces(store, delayed={18: 1}).by_unique_key("T", KEY).copies
    assert (copy.state, copy.why) == (CopyState.DELIVERED, "level 18 is delivered up to 1")
    (copy,) = _traces(store, delayed={18: 0}).by_unique_key("T", KEY).copies
    assert copy.state is CopyState.WAITING


def _half(store: MessageStore, **more: str) -> Placement:
    return _put(store, HALF_TOPIC, REAL_TOPIC="T", REAL_QID="0", **more)


def test_half_message_is_pending_until_its_message_is_there(store: MessageStore) -> None:
    _half(store)
    (half,) = _trace(store).copies
    assert (half.kind, half.state) == (CopyKind.HALF, CopyState.PENDING)
    _put(store)
    half, message = _trace(store).copies
    assert (half.state, message.kind) == (CopyState.COMMITTED, CopyKind.MESSAGE)


def test_half_message_that_was_put_once_more_is_renewed(store: MessageStore) -> None:
    _half(store)
    _half(store)
    states = [each.state for each in _trace(store).copies]
    assert states == [CopyState.RENEWED, CopyState.PENDING]


@pytest.mark.parametrize(
    ("decision", "state"),
    [("rollback", CopyState.ROLLED_BACK), ("set-aside", CopyState.SET_ASIDE)],
)
def test_half_message_has_what_its_op_record_says(
    store: MessageStore, decision: str, state: CopyState
) -> None:
    _half(store, MQSTORE_TRANSACTION="first")
    _put(store, OP_TOPIC, key="an-op", KEYS="first", MQSTORE_DECISION=decision)
    (half,) = _trace(store).copies
    assert half.state is state


def test_half_message_that_brokers_are_past_was_rolled_back(store: MessageStore) -> None:
    _half(store)
    store.offsets.commit(TRANSACTION_GROUP, [Commit(HALF_TOPIC, 0, 1)])
    (half,) = _trace(store).copies
    assert half.state is CopyState.ROLLED_BACK


def test_half_message_that_was_checked_too_often_was_set_aside(store: MessageStore) -> None:
    _half(store)
    _put(store, CHECK_MAX_TIME_TOPIC, REAL_TOPIC="T")
    assert [each.kind for each in _trace(store).copies] == [CopyKind.HALF, CopyKind.SET_ASIDE]


def test_key_finds_each_message_once_delayed_ones_too(store: MessageStore) -> None:
    for number in range(3):
        _put(store, key=f"U{number}")
    _put(store, key="U3", DELAY="18")
    _put(store, RETRY, key="U0", RETRY_TOPIC="T")
    traces = _traces(store)
    page = traces.by_key("T", "order-1", limit=16, cursor=None)
    assert [each.uniq_key for each in page.traces] == ["U3", "U2", "U1", "U0"]
    assert [len(each.copies) for each in page.traces] == [1, 1, 1, 2]
    assert (page.cursor, page.complete) == (None, True)
    first = traces.by_key("T", "order-1", limit=3, cursor=None)
    assert not first.complete
    rest = traces.by_key("T", "order-1", limit=3, cursor=first.cursor)
    assert [each.uniq_key for each in first.traces + rest.traces] == ["U3", "U2", "U1", "U0"]


def test_message_without_a_unique_key_is_all_that_is_found_and_may_not_be_all(
    store: MessageStore,
) -> None:
    placed = put_message(store, Message("T", 0, b"x", b"", store.host, store.host, 1))
    trace = _traces(store).of(store.lookups.by_physical_offset(placed.physical_offset))
    assert (trace.uniq_key, len(trace.copies), trace.complete) == (None, 1, False)


def test_unknown_unique_key_is_an_error(store: MessageStore) -> None:
    _put(store)
    with pytest.raises(KeyUnknown):
        _traces(store).by_unique_key("T", "other")
    with pytest.raises(KeyUnknown):
        _traces(store).by_unique_key("U", KEY)


def test_damaged_copy_is_named_and_the_trace_is_not_complete(store: MessageStore) -> None:
    _put(store)
    hurt = _put(store, RETRY, RETRY_TOPIC="T")
    with (store.paths.commit_log / segment_name(0)).open("r+b") as file:
        file.seek(hurt.physical_offset + BODY_AT)
        file.write(b"!")
    trace = _trace(store)
    assert [each.kind for each in trace.copies] == [CopyKind.MESSAGE]
    assert [each.physical_offset for each in trace.unreadable] == [hurt.physical_offset]
    assert not trace.complete


def test_message_of_which_only_damage_is_left_is_an_error(store: MessageStore) -> None:
    hurt = _put(store)
    with (store.paths.commit_log / segment_name(0)).open("r+b") as file:
        file.seek(hurt.physical_offset + BODY_AT)
        file.write(b"!")
    with pytest.raises(RecordError):
        _trace(store)
