"""Dead letters of a group: the messages of ``%DLQ%GROUP`` that were not resent or purged.

Facts: AbstractSendMessageProcessor of 4.9.7 and 5.4.0: a dead letter is a copy of the message with
RETRY_TOPIC and ORIGIN_MESSAGE_ID, and counts its returns in ``reconsumeTimes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import GroupUnknown
from mqstore.storage.layout import (
    KEY_SEPARATOR,
    PROPERTY_ATTEMPTS,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WHY,
)
from mqstore.storage.lookup.topic_scan import TopicQuery
from mqstore.storage.lookup.views import QueueView, names_record
from mqstore.storage.metadata.settled_letters import NOTHING_SETTLED, Settled, SettledLetters


class TopicQueues(Protocol):
    """The queues of a store by topic."""

    def of_topic(self, topic: str) -> Iterable[QueueView]:
        """The queues of one topic."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, and what its properties say of the message."""

    record: Record

    @property
    def source_topic(self) -> str | None:
        """The topic that the message was produced to; None for a message that a client put into
        the topic of dead letters."""
        return self._property(PROPERTY_RETRY_TOPIC) or self._property(PROPERTY_DLQ_ORIGIN_TOPIC)

    @property
    def origin_message_id(self) -> str | None:
        """The offset message id of the first copy of the message."""
        known = self._property(PROPERTY_ORIGIN_MESSAGE_ID)
        return known or self._property(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)

    @property
    def reason(self) -> str | None:
        """The reason of the last return; None where the consumer gave none."""
        return self._property(PROPERTY_WHY)

    @property
    def attempts(self) -> int:
        """How often the message was delivered; as a broker counts where it made the dead letter."""
        counted = self._property(PROPERTY_ATTEMPTS) or ""
        is_number = counted.isascii() and counted.isdigit() and len(counted) < 10
        return int(counted) if is_number else self.record.reconsume_times

    def _property(self, name: str) -> str | None:
        return (self.record.properties or {}).get(name)


@dataclass(frozen=True, slots=True)
class DeadLetterQuery(TopicQuery):
    """The open dead letters of a topic ``%DLQ%GROUP`` that match. None: any."""

    source_topic: str | None = None
    key: str | None = None
    """Unique key, one of KEYS, or the origin message id."""
    tag: str | None = None
    reason: str | None = None
    """A part of the reason."""
    settled: Mapping[int, SettledLetters] = field(default_factory=dict, repr=False, compare=False)
    """By queue id; no part of the identity of the query, since it changes between pages."""

    def with_settled(self, settled: Mapping[int, SettledLetters]) -> DeadLetterQuery:
        """The query over the dead letters that are open now."""
        return replace(self, settled=settled)

    def accepts(self, found: Record) -> bool:
        """Whether the record is an open dead letter that matches."""
        if not TopicQuery.accepts(self, found) or self._settled(found).has(found.queue_offset):
            return False
        letter = DeadLetter(found)
        return (
            (self.source_topic is None or self.source_topic == letter.source_topic)
            and (self.tag is None or self.tag == found.tags)
            and (self.reason is None or self.reason in (letter.reason or ""))
            and (self.key is None or self.key in _keys(letter))
        )

    def is_over(self, found: Record) -> bool:
        """Whether no later record of its queue can match."""
        if self.newest_first and self._settled(found).first_open(0) > found.queue_offset:
            return True
        return TopicQuery.is_over(self, found)

    def _settled(self, found: Record) -> SettledLetters:
        return self.settled.get(found.queue_id, NOTHING_SETTLED)


def _keys(letter: DeadLetter) -> Iterable[str | None]:
    found = letter.record
    return (
        found.uniq_key,
        letter.origin_message_id,
        *(found.keys or "").split(KEY_SEPARATOR),
    )


def unknown_group(group: str) -> GroupUnknown:
    """The error of a group without dead letters and offsets: its name may be wrong."""
    return GroupUnknown(f"group {group} has no dead letters and has committed no offset")


def settled_of(queues: TopicQueues, topic: str, settled: Settled) -> dict[int, SettledLetters]:
    """The settled dead letters of a topic by queue id, of queues that are still the same."""
    return {
        queue.queue_id: known
        for queue in queues.of_topic(topic)
        if (known := settled.get((topic, queue.queue_id))) is not None and _is_same(queue, known)
    }


def count_open(queues: TopicQueues, topic: str, settled: Settled) -> int:
    """Number of dead letters of a topic that are not settled."""
    known = settled_of(queues, topic, settled)
    count = 0
    for queue in queues.of_topic(topic):
        high = queue.max_index  # read first: a queue that expires never shows min above max
        low = min(queue.min_index, high)
        count += high - low - known.get(queue.queue_id, NOTHING_SETTLED).count(low, high)
    return count


def first_open(queues: TopicQueues, topic: str, known: Mapping[int, SettledLetters]) -> int | None:
    """Physical offset from which on a topic may have open dead letters; None: from its first."""
    found = []
    for queue in queues.of_topic(topic):
        high = queue.max_index
        index = known.get(queue.queue_id, NOTHING_SETTLED).first_open(min(queue.min_index, high))
        entry = queue.entry(index) if index < high else None
        if entry is not None:
            found.append(entry.physical_offset if names_record(entry) else 0)
    return min(found, default=0) or None


def _is_same(queue: QueueView, known: SettledLetters) -> bool:
    """Whether a queue is the one whose dead letters were settled: a topic may have been deleted and
    created again, with offsets from 0."""
    if known.last.queue_offset < queue.min_index:
        return True
    entry = queue.entry(known.last.queue_offset)
    return entry is not None and entry.physical_offset == known.last.physical_offset
