"""The open store of the query service, with everything that is cached about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqstore.query.topic_queues import TopicQueues
from mqstore.storage import StoreReader
from mqstore.storage.admin import (
    ConsumerFilters,
    ConsumerOffsets,
    DelayOffsets,
    FollowedTable,
    SubscriptionGroups,
)
from mqstore.storage.directory import StorePaths
from mqstore.storage.errors import QueueUnknown, TopicUnknown
from mqstore.storage.host import Seams
from mqstore.storage.reads import (
    FollowedExpired,
    FollowedSettled,
    GroupLags,
    QueueRange,
    count_open,
)

CONSUMING_MAX: Final = 10_000
"""Maximum number of pairs of topic and group that are known to be consumable."""


class OpenedStore:
    """A reader of one store, and the caches that belong to this store alone.

    When another store replaces the files, it is opened as a new ``OpenedStore`` with empty caches.
    """

    def __init__(self, reader: StoreReader, seams: Seams) -> None:
        paths = StorePaths(reader.root)
        self.reader = reader
        self.id = reader.format.store_id
        self.topics = TopicQueues(paths, seams)
        self.groups = FollowedTable(SubscriptionGroups, paths, seams)
        self.offsets = FollowedTable(ConsumerOffsets, paths, seams)
        self.filters = FollowedTable(ConsumerFilters, paths, seams)
        self.delays = FollowedTable(DelayOffsets, paths, seams)
        self.settled = FollowedSettled(seams.files, paths.dead_letters)
        self.expired = FollowedExpired(seams.files, paths.expired_unread)
        self._consuming: dict[tuple[str, str], int] = {}
        """By topic and group, the revision of the tables at which it could be consumed."""
        self.in_memory_until: dict[tuple[str, int], float] = {}
        """By topic and queue id, the monotonic time in seconds until which the end of the queue
        counts as in memory, because it was read a moment before."""

    @classmethod
    def open(cls, root: Path, seams: Seams, on_damage: Callable[[int], object]) -> OpenedStore:
        """Open a store for reading. Raises what ``StoreReader.open`` raises.

        ``on_damage`` is called with the physical offset of damage, from any thread.
        """
        return cls(StoreReader.open(root, seams, on_damage), seams)

    def may_consume(self, topic: str, group: str) -> bool:
        """Whether ``require_consuming`` is known to raise nothing: no table has changed since."""
        revision = self.reader.state.tables_revision
        return revision != 0 and self._consuming.get((topic, group)) == revision

    def require_consuming(self, topic: str, group: str) -> None:
        """Raise TopicNotReadable or GroupDisabled where a broker refuses this pull; ``group`` is
        empty for a pull of none. May wait for the disk."""
        revision = self.reader.state.tables_revision
        self.topics.require_readable(topic)
        if group:
            self.groups.now().table.require_consuming(group, [topic])
        if len(self._consuming) >= CONSUMING_MAX:
            self._consuming.clear()
        self._consuming[topic, group] = revision

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Return the bounds of a queue, also of one without messages. Raises QueueUnknown,
        TopicUnknown."""
        try:
            return self.reader.lookups.queue_range(topic, queue_id)
        except QueueUnknown:
            if queue_id < self.topics.read_queues(topic):
                return QueueRange(topic, queue_id, 0, 0)
            self.require_topic(topic)
            raise

    def queues(self, topic: str) -> list[QueueRange]:
        """Return the bounds of all queues of a topic, by queue id. Raises TopicUnknown."""
        configured = self.topics.read_queues(topic)
        try:
            found = {each.queue_id: each for each in self.reader.lookups.queues(topic)}
        except TopicUnknown:
            if not configured:
                raise
            found = {}
        for queue_id in range(configured):
            found.setdefault(queue_id, QueueRange(topic, queue_id, 0, 0))
        return [found[queue_id] for queue_id in sorted(found)]

    def received_queues(self, topic: str) -> list[QueueRange]:
        """Return the bounds of the queues that consumers receive from, by queue id; not those that
        a change of the topic took away. Raises TopicUnknown."""
        count = self.topics.received_queues(topic)
        return [each for each in self.queues(topic) if count is None or each.queue_id < count]

    def require_topic(self, topic: str) -> None:
        """Raises TopicUnknown for a topic that was never created and has no message."""
        if not self.topics.read_queues(topic):
            self.reader.lookups.queues(topic)

    def group_lags(self, offsets: ConsumerOffsets) -> GroupLags:
        """Return the lags of groups at the given offsets."""
        return GroupLags(
            *(self.reader.lookups, offsets, self.received_queues, self.count_dead_letters),
            self.expired.of,
        )

    def count_dead_letters(self, topic: str) -> int:
        """Number of open dead letters of a topic ``%DLQ%GROUP``. May wait for the disk."""
        return count_open(self.reader.queues, topic, self.settled.now())

    @property
    def why_replaced(self) -> str | None:
        """Why the reader's files are no longer those at its path; None while they are."""
        try:
            return self.reader.why_replaced
        except OSError as error:
            return f"its files cannot be checked ({error})"
