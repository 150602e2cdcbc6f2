"""Consumer offsets: the queue offset of the next message that a group will consume, for each queue.

The offsets are kept in memory. As in a broker they are saved to ``consumerOffset.json`` every
flushConsumerOffsetInterval and at the close: after a kill, the messages of unsaved commits are
consumed again. Source: ConsumerOffsetManager of 4.9.7 and 5.4.0. Two things differ from it:

RocketMQ accepts any offset; this class accepts offsets within the queue, and lower ones on request
only. RocketMQ saves offsets of messages that are not on disk, so that after a power cut a group may
stand behind its queue's end and skip the next messages; this class syncs the log first, and at an
opening lowers an offset behind its queue's end to that end.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from threading import Lock
from typing import NamedTuple

from mqstore.storage import topic_names
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import FlushTimeout, OffsetRefused, QueueUnknown, TopicUnknown
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.metadata.expired_unread import ExpiredUnread
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.recovery.report import LoweredOffset
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicConfig

_log = logging.getLogger(__name__)


class Position(StrEnum):
    """The position to which a reset moves a group."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    """The first message stored at or after a time."""
    GROUP = "group"
    """The offset of another group."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The offset that a group commits: that of the next message to consume."""

    topic: str
    queue_id: int
    offset: int


class GroupOffset(NamedTuple):
    """The position of a group in one queue."""

    topic: str
    queue_id: int
    committed: int | None
    """None when the group has committed no offset for this queue."""
    min_offset: int
    max_offset: int

    @property
    def lag(self) -> int:
        """The number of messages still to be consumed; all of the queue without an offset."""
        return self.max_offset - min(self.max_offset, max(self.min_offset, self.committed or 0))

    @property
    def start(self) -> int:
        """The offset of the next message; the queue's first one without a committed offset."""
        return self.min_offset if self.committed is None else self.committed


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The effect of a reset on one queue. ``before`` is None without a committed offset."""

    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class GroupOffsets:
    """A ``BackgroundService`` that keeps, checks and saves consumer offsets. Thread-safe."""

    name = "consumer-offsets"

    def __init__(
        self,
        table: ConsumerOffsets,
        topic_of: Callable[[str], TopicConfig],
        log: CommitLog,
        queues: ConsumeQueues,
        lookups: Lookups,
        config: StoreConfig,
        require_writable: Callable[[], None],
        expired: ExpiredUnread,
    ) -> None:
        """``topic_of`` raises TopicUnknown; ``require_writable`` raises StoreNotWritable or
        StoreFailed where nothing may change."""
        self.expired = expired
        """Counts messages that expired before a group's offset passed them."""
        self._require_writable = require_writable
        self._table = table
        self._topic_of = topic_of
        self._log = log
        self._queues = queues
        self._lookups = lookups
        self._interval_s = config.flush_consumer_offset_interval / 1000
        self._lock = Lock()
        """Protects a change of offsets and the check before it."""
        self._saving = Lock()
        self.end_leases: Callable[[Callable[[str, str, int], bool]], None] = lambda _: None
        """Ends the leases of shared groups where a predicate of group, topic and queue id holds;
        durable at return. Called with no lock held; errors as ``save``."""

    def step(self, now: float) -> float:
        """Save changed offsets, unless a save is under way; a failed write is retried at the next
        step. Raises StoreFailed."""
        if self._saving.acquire(blocking=False):
            try:
                self._save()
            except (OSError, FlushTimeout) as error:
                _log.error("consumer offsets are not saved, retried later: %s", error)
            finally:
                self._saving.release()
        return now + self._interval_s

    def save(self) -> None:
        """Save changed offsets, after a sync of the log that they refer to.

        Raises FlushTimeout, StoreFailed, OSError; the next call then retries.
        """
        with self._saving:  # else a second call would return before the first one has saved
            self._save()

    def _save(self) -> None:
        if self._table.is_changed:
            self._table.save(self._log.sync)
        self.expired.save()

    def lower_to_ends(self) -> list[LoweredOffset]:
        """Lower each offset that is behind its queue's end to that end; durable at return.

        Called at an opening, before the first put: otherwise the next messages would get offsets
        that such a group has passed. The end of a missing queue is the offset that its next message
        gets. Raises OSError.
        """
        found = []
        for group, topic, queue_id, offset in self._table.all():
            end = self._log.offsets.next(topic, queue_id)
            if offset > end:
                self._table.put(group, topic, queue_id, end)
                found.append(
                    LoweredOffset(
                        group=group, topic=topic, queue_id=queue_id, before=offset, after=end
                    )
                )
        if found:
            self._table.save_with_backup()
        return found

    def groups(self) -> dict[str, list[str]]:
        """The topics in which each group has offsets."""
        return self._table.groups()

    def has_group(self, group: str) -> bool:
        """Whether a group has an offset."""
        return self._table.has_group(group)

    def group_names(self) -> set[str]:
        """The groups that have offsets."""
        return self._table.group_names()

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return self._table.topics_of(group)

    def page_of_all(self, after: str, limit: int) -> tuple[dict[str, dict[int, int]], bool]:
        """The committed offsets of groups, by topic@group and queue id, in the order of these keys,
        and whether there are more behind."""
        return self._table.page(after, limit)

    def of(self, group: str, topic: str | None = None) -> list[GroupOffset]:
        """The positions of a group in one topic, or in all topics in which it has offsets.

        Raises GroupNameError, TopicUnknown.
        """
        found, _ = self.page(group, topic)
        return found

    def page(
        self,
        group: str,
        topic: str | None = None,
        *,
        after: tuple[str, float] = ("", -1),
        limit: int = sys.maxsize - 1,
    ) -> tuple[list[GroupOffset], bool]:
        """Those of ``of`` behind a topic and queue id, ``limit`` at most, and whether there are
        more behind."""
        topic_names.check_group(group)
        names = [topic] if topic is not None else sorted(self.topics_of(group))
        found: list[GroupOffset] = []
        for name in names:
            if name >= after[0] and len(found) <= limit:
                ids = (each for each in self.queue_ids(group, name) if (name, each) > after)
                found += [
                    self.stand(group, name, each) for each in islice(ids, limit + 1 - len(found))
                ]
        return found[:limit], len(found) > limit

    def queue_ids(self, group: str, topic: str) -> range:
        """The queues of a topic; of one that was deleted, those up to the last one in which the
        group has an offset. Raises TopicUnknown."""
        try:
            return self._queue_ids(topic)
        except TopicUnknown:
            known = self._table.of(group, topic)
            if not known:
                raise
            return range(max(known) + 1)

    def stand(self, group: str, topic: str, queue_id: int) -> GroupOffset:
        """The position of a group in one queue."""
        committed = self._table.get(group, topic, queue_id)
        queue = self._queues.get(topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_index, queue.max_index)
        return GroupOffset(topic, queue_id, committed, low, high)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a group in a queue; None without one."""
        return self._table.get(group, topic, queue_id)

    def commit(
        self, group: str, commits: Sequence[Commit], *, allow_back: bool = False
    ) -> list[GroupOffset]:
        """Commit all of these offsets, or none; returns the group's positions in those queues.

        Raises GroupNameError, TopicUnknown, QueueUnknown, OffsetRefused, StoreNotWritable,
        StoreFailed.
        """
        self._require_writable()
        topic_names.check_group(group)
        with self._lock:
            for each in commits:
                self._check(group, each, allow_back=allow_back)
            for each in commits:
                self._count_expired(group, each)
                self._table.put(group, each.topic, each.queue_id, each.offset)
        return [self.stand(group, each.topic, each.queue_id) for each in commits]

    def advance(self, group: str, commit: Commit, before: int | None) -> bool:
        """Commit an offset if the group's offset is still ``before``; return whether it was.

        Raises TopicUnknown, QueueUnknown, OffsetRefused, StoreNotWritable, StoreFailed.
        """
        self._require_writable()
        with self._lock:
            if self._table.get(group, commit.topic, commit.queue_id) != before:
                return False
            self._check(group, commit, allow_back=True)
            self._table.put(group, commit.topic, commit.queue_id, commit.offset)
        return True

    def plan_reset(
        self,
        group: str,
        topic: str,
        to: Position,
        timestamp_ms: int = 0,
        queue_ids: Iterable[int] | None = None,
        source: str = "",
    ) -> list[OffsetChange]:
        """The changes that a reset of these queues (default: all of the topic's) would make.

        ``source`` is the other group; queues without an offset of it do not change. Raises
        GroupNameError, TopicUnknown, QueueUnknown.
        """
        topic_names.check_group(group)
        offsets = self._table.of(source, topic) if to is Position.GROUP else {}
        known = self._queue_ids(topic)
        requested = known if queue_ids is None else sorted(set(queue_ids))
        for queue_id in requested:
            if queue_id not in known:
                raise QueueUnknown(_no_queue(topic, queue_id))
        found = []
        for queue_id in requested:
            stand = self.stand(group, topic, queue_id)
            low, high = stand.min_offset, stand.max_offset
            if to is not Position.GROUP:
                after = self._target(stand, to, timestamp_ms)
            elif queue_id in offsets:
                after = min(offsets[queue_id], high)
            else:
                continue
            found.append(OffsetChange(topic, queue_id, stand.committed, after, low, high))
        return found

    def apply(self, group: str, changes: Iterable[OffsetChange]) -> None:
        """Apply planned changes; durable at return. Messages that a shared group acknowledged
        behind the new offsets are delivered again.

        Raises StoreNotWritable; and FlushTimeout, StoreFailed or OSError when the changes are not
        on disk, and may be in memory.
        """
        self._require_writable()
        changes = list(changes)
        queues = {(change.topic, change.queue_id) for change in changes}
        # Before the change: an unchanged offset would leave the leases valid.
        self.end_leases(lambda of, topic, queue_id: of == group and (topic, queue_id) in queues)
        with self._lock:
            for change in changes:
                self._table.put(group, change.topic, change.queue_id, change.after)
            self._table.on_forced()
        self.save()

    def forget_group(self, group: str) -> None:
        """Remove a group's offsets; durable at return. Errors as ``save``."""
        with self._lock:
            self._table.remove_group(group)
            self.expired.forget(group=group)
        self.save()

    def forget_topic(self, topic: str) -> None:
        """Remove all groups' offsets in a topic; durable at return. Errors as ``save``."""
        with self._lock:
            self._table.remove_topic(topic)
            self.expired.forget(topic=topic)
        self.save()

    def _check(self, group: str, commit: Commit, *, allow_back: bool) -> None:
        topic, queue_id, offset = commit.topic, commit.queue_id, commit.offset
        is_there = queue_id in self._queue_ids(topic)
        if not is_there and self._queues.get(topic, queue_id) is None:
            raise QueueUnknown(_no_queue(topic, queue_id))
        stand = self.stand(group, topic, queue_id)
        if not 0 <= offset <= stand.max_offset:
            raise OffsetRefused(
                f"queue {queue_id} of {topic} ends at {stand.max_offset}; {offset} is not in it"
            )
        consumed = min(stand.committed or 0, stand.max_offset)
        if not allow_back and offset < consumed:
            raise OffsetRefused(
                f"group {group} has consumed queue {queue_id} of {topic} up to {stand.committed}; "
                f"to go back to {offset}, allow it or reset the group"
            )

    def _count_expired(self, group: str, commit: Commit) -> None:
        """Count the expired messages that a commit passes."""
        stand = self.stand(group, commit.topic, commit.queue_id)
        if stand.committed is not None and not topic_names.is_system_group(group):
            passed = min(commit.offset, stand.min_offset) - stand.committed
            self.expired.add(group, commit.topic, passed)

    def _queue_ids(self, topic: str) -> range:
        return range(self._topic_of(topic).queues)

    def _target(self, stand: GroupOffset, to: Position, timestamp_ms: int) -> int:
        if to is Position.EARLIEST:
            return stand.min_offset
        if to is Position.LATEST or self._queues.get(stand.topic, stand.queue_id) is None:
            return stand.max_offset
        return self._lookups.offset_by_time(stand.topic, stand.queue_id, timestamp_ms)


def _no_queue(topic: str, queue_id: int) -> str:
    return f"topic {topic} has no queue {queue_id}"
