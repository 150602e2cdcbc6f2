"""Copies a leader's config tables: topics, groups, consumer offsets, progress of delayed messages.

Source: SlaveSynchronize of 4.9.7, which requests each table in the JSON of its file. Offsets may be
ahead of the log that has arrived: they are saved after a sync of it, and an opening of the store
for writing lowers those that are behind their queue's end.
"""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from mqstore.storage.tables.subscription_groups import SubscriptionGroups


class TableCopies:
    """Replaces the tables of a store that follows a leader by the leader's. Thread-safe.

    Each method raises ConfigTableError for a text that is no such table, which changes nothing.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        adopt_delays: Callable[[str], None],
    ) -> None:
        """``adopt_delays`` is ``DelayedMessages.adopt``."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._adopt_delays = adopt_delays

    def take_topics(self, text: str) -> None:
        """Take ``topics.json``; durable at return. Raises OSError."""
        if self._topics.adopt(text):
            self._topics.save()

    def take_groups(self, text: str) -> None:
        """Take ``subscriptionGroup.json``; durable at return. Raises OSError."""
        if self._groups.adopt(text):
            self._groups.save()

    def take_consumer_offsets(self, text: str) -> None:
        """Take ``consumerOffset.json``; saved with the next save of consumer offsets."""
        self._offsets.adopt(text)

    def take_delay_offsets(self, text: str) -> None:
        """Take ``delayOffset.json``; durable at return. Raises FlushTimeout, StoreFailed,
        OSError."""
        self._adopt_delays(text)
