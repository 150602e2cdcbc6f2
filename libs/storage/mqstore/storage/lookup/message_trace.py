"""Traces one message: all its copies in the store, and the groups that have passed them.

A unique key stays with a message wherever it is put again: into SCHEDULE_TOPIC_XXXX until it is
due, into the half topic until it is decided, into %RETRY%GROUP each time a group sends it back and
at last into %DLQ%GROUP; RETRY_TOPIC names its first topic. Facts: AbstractSendMessageProcessor
(consumerSendMsgBack), ScheduleMessageService, TransactionalMessageBridge and
EndTransactionProcessor of 4.9.7 and 5.4.0.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import KeyUnknown, RecordError
from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PROPERTY_DECISION,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_KEY,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)
from mqstore.storage.log.waiting import timed_delivery
from mqstore.storage.lookup import pop_records
from mqstore.storage.lookup.answers import Unreadable
from mqstore.storage.lookup.hidden_messages import HiddenKind, by_key, topics_of
from mqstore.storage.lookup.key_query import KeyQuery
from mqstore.storage.lookup.lookups import TIME_MAX, Lookups
from mqstore.storage.lookup.record_place import RecordPlace, RecordPlaces
from mqstore.storage.tables.config_tables import ConsumerOffsets, DelayOffsets
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX, returning_group

COPIES_MAX: Final = 64
"""Maximum number of copies examined in one topic; RocketMQ sends a message back 16 times by
default."""
RETRY_TOPICS_MAX: Final = 1_000
"""Maximum number of retry and dead letter topics searched for one message."""
_HIDDEN: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, CHECK_MAX_TIME_TOPIC)


class CopyKind(StrEnum):
    """The kind of a copy, from its topic."""

    MESSAGE = "message"
    DELAYED = "delayed"
    HALF = "half"
    SET_ASIDE = "set-aside"
    """A half message that was checked too often."""
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"


class CopyState(StrEnum):
    """The state of a copy."""

    STORED = "stored"
    """The copy is in its queue, for consumers of that queue."""
    WAITING = "waiting"
    """A delayed message that is not due or not delivered yet."""
    DELIVERED = "delivered"
    PENDING = "pending"
    """A half message without a decision."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    SET_ASIDE = "set-aside"
    RENEWED = "renewed"
    """A half message that was put again; the later copy counts."""


@dataclass(frozen=True, slots=True)
class GroupStand:
    """Whether a group's committed offset is past a copy."""

    group: str
    committed: int | None
    has_passed: bool


@dataclass(slots=True)
class Copy:
    """One copy of a message."""

    record: Record
    place: RecordPlace | None
    """None when it has expired since."""
    kind: CopyKind
    group: str | None
    """The group that sent the message back (retries, also delayed ones, and dead letters); else
    None."""
    due_ms: int | None = None
    """Due time of a delayed copy, from its queue entry or its properties."""
    state: CopyState = CopyState.STORED
    why: str = ""
    """The evidence of the state; empty where the record itself shows it."""
    stands: list[GroupStand] = field(default_factory=list)

    @property
    def origin_message_id(self) -> str | None:
        """The id of the copy that was sent back first, as the broker noted it."""
        return _property(self.record, PROPERTY_ORIGIN_MESSAGE_ID)


@dataclass(frozen=True, slots=True)
class Trace:
    """All copies of one message, in the order of the log."""

    topic: str
    """The message's own topic."""
    uniq_key: str | None
    """None when the message has none: then other copies cannot be found."""
    copies: list[Copy]
    unreadable: list[Unreadable]
    complete: bool
    """Whether no copy that is still in the log is missing."""


@dataclass(frozen=True, slots=True)
class TracePage:
    """Some of the traces of a key query."""

    traces: list[Trace]
    cursor: str | None
    complete: bool


@dataclass(slots=True)
class _Copies:
    """Records of one message found so far."""

    records: list[Record] = field(default_factory=list)
    decisions: list[Record] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    complete: bool = True


class MessageTraces:
    """Traces messages over one version of the tables."""

    def __init__(
        self,
        lookups: Lookups,
        places: RecordPlaces,
        offsets: ConsumerOffsets,
        delays: DelayOffsets,
        topics: Callable[[], Iterable[str]],
    ) -> None:
        """``topics`` returns the names of all topics, or at least of the retry topics."""
        self._lookups = lookups
        self._places = places
        self._offsets = offsets
        self._delays = delays
        self._topics = topics

    def of(self, found: Record) -> Trace:
        """Trace the message of which a record is a copy."""
        topic = origin_topic(found)
        if found.uniq_key is None:
            return self._build_trace(topic, None, _Copies(records=[found], complete=False))
        return self._build_trace(topic, found.uniq_key, self._gather(topic, found.uniq_key, found))

    def by_unique_key(self, topic: str, key: str) -> Trace:
        """Trace the message with a unique key.

        Raises KeyUnknown, or the error of an unreadable copy when there is no other.
        """
        found = self._gather(topic, key, None)
        if not found.records and found.unreadable:
            raise found.unreadable[0].error
        if not found.records:
            raise KeyUnknown(
                f"no message of {topic} has the unique key {key}", complete=found.complete
            )
        return self._build_trace(topic, key, found)

    def by_key(self, topic: str, key: str, *, limit: int, cursor: str | None) -> TracePage:
        """Trace the messages of a topic with a key, newest first, delayed and half ones included.

        ``limit`` is the number of records: several may be copies of one message. Raises
        CursorError.
        """
        query = KeyQuery(topic, key, 0, TIME_MAX)
        hidden = topics_of(list(HiddenKind))
        page = by_key(self._lookups, query, hidden, limit=limit, cursor=cursor)
        traces: dict[str | int, Trace] = {}
        for found in page.records:
            name = found.uniq_key or found.physical_offset
            if name not in traces:
                traces[name] = self.of(found)
        whole = page.complete and not page.unreadable and all(t.complete for t in traces.values())
        return TracePage(list(traces.values()), page.cursor, whole)

    # search -------------------------------------------------------------------------------

    def _gather(self, topic: str, key: str, known: Record | None) -> _Copies:
        """Find everything with a unique key that is of this topic; ``known`` is one of its
        records."""
        found = _Copies()
        retries = self._retry_topics(topic)
        if len(retries) > RETRY_TOPICS_MAX:
            found.complete = False
        records = {} if known is None else {known.physical_offset: known}
        for each in (topic, *_HIDDEN, *retries[:RETRY_TOPICS_MAX]):
            for record in self._read_copies(each, key, found):
                if record.uniq_key == key and origin_topic(record) == topic:
                    records[record.physical_offset] = record
        found.records = [records[offset] for offset in sorted(records)]
        for name in sorted(_decision_keys(found.records)):
            found.decisions += self._read_copies(OP_TOPIC, name, found)
        return found

    def _read_copies(self, topic: str, key: str, found: _Copies) -> list[Record]:
        answer = self._lookups.by_key(topic, key, limit=COPIES_MAX)
        found.complete = found.complete and answer.complete
        found.unreadable += answer.unreadable
        return answer.records

    def _retry_topics(self, topic: str) -> list[str]:
        """The existing retry topics; first those of groups that consume the topic."""
        groups = [name for name, topics in self._offsets.groups().items() if topic in topics]
        near = [prefix + group for group in sorted(groups) for prefix in (RETRY_PREFIX, DLQ_PREFIX)]
        known = {name for name in self._topics() if name.startswith((RETRY_PREFIX, DLQ_PREFIX))}
        return near + sorted(known.difference(near))

    # states -------------------------------------------------------------------------------

    def _build_trace(self, topic: str, key: str | None, found: _Copies) -> Trace:
        copies = [self._copy(record) for record in found.records]
        for each in copies:
            if each.kind is CopyKind.DELAYED:
                self._resolve_delayed(each, copies)
            elif each.kind is CopyKind.HALF:
                self._resolve_half(each, copies, found.decisions)
            elif each.kind is not CopyKind.SET_ASIDE:
                each.stands = self._group_stands(each.record)
        return Trace(topic, key, copies, found.unreadable, found.complete and not found.unreadable)

    def _copy(self, record: Record) -> Copy:
        try:
            place = self._places.of(record)
        except RecordError:
            place = None  # the bytes changed since the read
        kind = _kind_of(record.topic)
        copy = Copy(record, place, kind, _returning_group_of(record))
        if record.topic == TIMER_TOPIC:
            copy.due_ms = timed_delivery(record.properties or {})
        elif record.topic == SCHEDULE_TOPIC and place is not None and place.entry is not None:
            copy.due_ms = place.entry.tags_code
        return copy

    def _resolve_delayed(self, copy: Copy, copies: Sequence[Copy]) -> None:
        record, target = copy.record, _property(copy.record, PROPERTY_REAL_TOPIC)
        later = _first_after(
            record, (each.record for each in copies if each.record.topic == target)
        )
        passed = self._delays.get(record.queue_id + 1)
        if later is not None:
            copy.state, copy.why = CopyState.DELIVERED, f"its copy at {later.physical_offset}"
        elif record.topic == SCHEDULE_TOPIC and passed > record.queue_offset:
            copy.state = CopyState.DELIVERED
            copy.why = f"level {record.queue_id + 1} is delivered up to {passed}"
        else:
            copy.state, copy.why = CopyState.WAITING, "no copy of it was put into its topic"

    def _resolve_half(
        self, copy: Copy, copies: Sequence[Copy], decisions: Sequence[Record]
    ) -> None:
        record = copy.record
        halves = (each.record for each in copies if each.kind is CopyKind.HALF)
        messages = (each.record for each in copies if each.kind is CopyKind.MESSAGE)
        passed = self._offsets.get(TRANSACTION_GROUP, HALF_TOPIC, record.queue_id)
        if (message := _first_after(record, messages)) is not None:
            copy.state, copy.why = CopyState.COMMITTED, f"the message at {message.physical_offset}"
        elif (later := _first_after(record, halves)) is not None:
            copy.state, copy.why = CopyState.RENEWED, f"the half at {later.physical_offset}"
        elif (decision := _find_decision(decisions)) is not None:
            copy.state, copy.why = decision
        elif passed is not None and passed > record.queue_offset:
            copy.state = CopyState.ROLLED_BACK
            copy.why = f"{TRANSACTION_GROUP} is past it, at {passed}, and there is no message"
        else:
            copy.state, copy.why = CopyState.PENDING, "neither a message nor a decision of it"

    def _group_stands(self, record: Record) -> list[GroupStand]:
        """The positions of all groups with an offset in the topic, by name."""
        found = []
        for group, topics in sorted(self._offsets.groups().items()):
            if record.topic in topics:
                committed = self._offsets.get(group, record.topic, record.queue_id)
                passed = committed is not None and committed > record.queue_offset
                found.append(GroupStand(group, committed, passed))
        return found


def origin_topic(record: Record) -> str:
    """The message's own topic, whatever topic this copy stands in."""
    if _kind_of(record.topic) is CopyKind.MESSAGE:
        return record.topic
    real = _property(record, PROPERTY_REAL_TOPIC)
    return _property(record, PROPERTY_RETRY_TOPIC) or real or record.topic


def _kind_of(topic: str) -> CopyKind:
    if topic.startswith(RETRY_PREFIX):
        return CopyKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return CopyKind.DEAD_LETTER
    return _KINDS.get(topic, CopyKind.MESSAGE)


_KINDS: Final = {
    SCHEDULE_TOPIC: CopyKind.DELAYED,
    TIMER_TOPIC: CopyKind.DELAYED,
    HALF_TOPIC: CopyKind.HALF,
    CHECK_MAX_TIME_TOPIC: CopyKind.SET_ASIDE,
}


def _returning_group_of(record: Record) -> str | None:
    real = _property(record, PROPERTY_REAL_TOPIC) or ""
    group = returning_group(record.topic) or returning_group(real)
    by_pop = _property(record, PROPERTY_ORIGIN_GROUP)
    if by_pop and pop_records.source_of(record.topic, by_pop) is not None:
        return by_pop  # %RETRY%GROUP_TOPIC does not say where the group ends
    return group


def _property(record: Record, name: str) -> str | None:
    return (record.properties or {}).get(name)


def _decision_keys(records: Iterable[Record]) -> set[str]:
    """The keys of the transactions of these half messages."""
    keys = set()
    for each in records:
        if each.topic == HALF_TOPIC:
            keys.add(_property(each, PROPERTY_TRANSACTION_KEY) or each.uniq_key or "")
    return keys - {""}


_DECISIONS: Final = {
    "rollback": CopyState.ROLLED_BACK,
    "set-aside": CopyState.SET_ASIDE,
    "commit": CopyState.COMMITTED,
}


def _find_decision(decisions: Iterable[Record]) -> tuple[CopyState, str] | None:
    """The decision that the newest of these op records holds; a broker's op records hold none."""
    for each in sorted(decisions, key=lambda record: record.physical_offset, reverse=True):
        state = _DECISIONS.get(_property(each, PROPERTY_DECISION) or "")
        if state is not None:
            return state, f"the op record at {each.physical_offset}"
    return None


def _first_after(record: Record, others: Iterable[Record]) -> Record | None:
    return next((each for each in others if each.physical_offset > record.physical_offset), None)
