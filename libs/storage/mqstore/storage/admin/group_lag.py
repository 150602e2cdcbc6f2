"""The lag of consumer groups, in messages and in time, from committed offsets.

Facts: AdminBrokerProcessor.getConsumeStats of 4.9.7 and 5.4.0 and ConsumerLagCalculator of 5.4.0. A
queue's lag there is its end less the committed offset, which includes expired messages; here those
are counted separately. The latency is the age of the message at the committed offset.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mqstore.storage.admin.group_offsets import GroupOffset
from mqstore.storage.errors import OffsetOutOfRange, QueueUnknown, TopicUnknown
from mqstore.storage.lookup.answers import QueueRange
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.storage.topic_names import DLQ_PREFIX

QUEUES_PER_CALL: Final = 5_000
"""Number of queues examined for one page of whole groups; the group that passes it is completed."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group's lag in one queue; times are store timestamps in ms, by the present clock."""

    stand: GroupOffset
    expired: int
    """Messages that expired before the group consumed them; not in ``stand.lag``."""
    next_ms: int | None
    """Store time of the next message to consume; None without one, or when it cannot be read."""
    consumed_ms: int | None
    """Store time of the message before the committed offset, while it can be read."""

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the next message: 0 without one, None when it is unknown."""
        if self.stand.lag == 0:
            return 0
        return None if self.next_ms is None else max(0, now_ms - self.next_ms)


@dataclass(frozen=True, slots=True)
class TopicLag:
    """A group's lag in one topic."""

    topic: str
    queues: list[QueueLag]
    passed: int = 0
    """Messages that expired before the group's offset passed them."""

    @property
    def lag(self) -> int:
        """Number of messages to consume."""
        return sum(each.stand.lag for each in self.queues)

    @property
    def expired(self) -> int:
        """Number of messages that expired before the group consumed them, and that its offset has
        not passed."""
        return sum(each.expired for each in self.queues)

    @property
    def expired_total(self) -> int:
        """Number of messages that expired before the group consumed them."""
        return self.passed + self.expired

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the oldest message to consume; None when one of the queues' ages is unknown."""
        ages = [each.age_ms(now_ms) for each in self.queues]
        known = [age for age in ages if age is not None]
        return None if len(known) < len(ages) else max(known, default=0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag in several topics."""

    group: str
    topics: list[TopicLag]
    dead_letters: int
    """Messages of the group's dead letter topic that were not resent or purged."""

    @property
    def lag(self) -> int:
        """Number of messages to consume."""
        return sum(each.lag for each in self.topics)


class GroupLags:
    """Computes lags from one version of ``consumerOffset.json``."""

    def __init__(
        self,
        lookups: Lookups,
        offsets: ConsumerOffsets,
        queues_of: Callable[[str], list[QueueRange]],
        dead_letters_of: Callable[[str], int],
        passed_of: Callable[[str, str], int] = lambda _group, _topic: 0,
    ) -> None:
        """``queues_of`` returns all queues of a topic by id; it raises TopicUnknown.
        ``dead_letters_of`` returns the number of open dead letters of a topic ``%DLQ%GROUP``,
        ``passed_of`` that of expired messages that a group has passed in a topic."""
        self._lookups = lookups
        self._offsets = offsets
        self._queues_of = queues_of
        self._dead_letters_of = dead_letters_of
        self._passed_of = passed_of

    def group(self, group: str, topics: list[str]) -> GroupLag:
        """The group's lag in these topics; without an offset, all messages of a topic count.

        Raises TopicUnknown for a missing topic in which the group has no offset.
        """
        found = [self.topic(group, topic) for topic in topics]
        return GroupLag(group, found, self.dead_letters(group))

    def dead_letters(self, group: str) -> int:
        """Number of open dead letters of a group."""
        return self._dead_letters_of(DLQ_PREFIX + group)

    def topic(self, group: str, topic: str) -> TopicLag:
        """The group's lag in one topic. Errors as ``group``."""
        committed = self._offsets.of(group, topic)
        try:
            ranges = self._queues_of(topic)
        except TopicUnknown:
            if not committed:
                raise
            ranges = []
        known = {each.queue_id for each in ranges}
        gone = (QueueRange(topic, each, 0, 0) for each in committed if each not in known)
        queues = sorted([*ranges, *gone], key=lambda each: each.queue_id)
        lags = [self._queue(each, committed.get(each.queue_id)) for each in queues]
        return TopicLag(topic, lags, self._passed_of(group, topic))

    def page(
        self, groups: dict[str, list[str]], *, limit: int, after: str
    ) -> tuple[list[GroupLag], str | None]:
        """The groups after the name ``after``, by name, and the last name when there are more."""
        names = sorted(name for name in groups if name > after)
        found: list[GroupLag] = []
        queues = 0
        for name in names:
            if len(found) == limit or queues >= QUEUES_PER_CALL:
                return found, found[-1].group
            found.append(self.group(name, sorted(groups[name])))
            queues += sum(len(each.queues) for each in found[-1].topics)
        return found, None

    def _queue(self, queue: QueueRange, committed: int | None) -> QueueLag:
        low, high = queue.min_offset, queue.max_offset
        stand = GroupOffset(queue.topic, queue.queue_id, committed, low, high)
        next_ms = self._stored_ms(queue, high - stand.lag) if stand.lag else None
        consumed_ms = None
        if committed is not None and low < committed <= high:
            consumed_ms = self._stored_ms(queue, committed - 1)
        expired = 0 if committed is None else max(0, low - committed)
        return QueueLag(stand, expired, next_ms, consumed_ms)

    def _stored_ms(self, queue: QueueRange, offset: int) -> int | None:
        """Store time of the first message from an offset on, by the present clock."""
        try:
            found = self._lookups.records(queue.topic, queue.queue_id, offset, 1)
        except (QueueUnknown, OffsetOutOfRange):
            return None  # the topic was deleted meanwhile
        if not found.records:
            return None
        first = found.records[0]
        return first.store_timestamp_ms + self._lookups.shift_ms(first.physical_offset)
