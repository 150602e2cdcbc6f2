"""``Administration`` joins the config tables of a store and the operations on them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from mqstore.storage.admin.group_offsets import GroupOffsets
from mqstore.storage.admin.groups import Groups
from mqstore.storage.admin.subscriptions import Subscriptions
from mqstore.storage.admin.table_saves import TableSaves
from mqstore.storage.admin.topics import TopicDeletion, Topics
from mqstore.storage.config import StoreConfig
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Clock, Seams
from mqstore.storage.tables.config_tables import ConsumerOffsets, TopicTable
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData
from mqstore.storage.tables.subscription_groups import SubscriptionGroups

if TYPE_CHECKING:
    from mqstore.storage.layout import StoreFormat
    from mqstore.storage.metadata.deleted_topics import DeletedTopics
    from mqstore.storage.metadata.expired_unread import ExpiredUnread
    from mqstore.storage.queues.consume_queues import ConsumeQueues


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdminTables:
    """The config tables of a store, loaded before the store is changed.

    A table that cannot be read prevents the opening.
    """

    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    filters: ConsumerFilters

    @classmethod
    def load(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """Load the four tables, and log what could not be read. Raises ConfigTableError,
        OSError."""
        where = paths, store_format, seams
        tables = cls(
            TopicTable.load(*where),
            SubscriptionGroups.load(*where),
            ConsumerOffsets.load(*where),
            ConsumerFilters.load(*where),
        )
        for table in (tables.topics, tables.groups, tables.offsets, tables.filters):
            if table.problem is not None:
                _log.error("%s", table.problem)
        return tables


class Administration:
    """Topics, groups, their offsets and subscriptions. Thread-safe."""

    def __init__(
        self,
        tables: AdminTables,
        config: StoreConfig,
        store_format: StoreFormat,
        deleted: DeletedTopics,
        log: CommitLog,
        queues: ConsumeQueues,
        lookups: Lookups,
        clock: Clock,
        expired: ExpiredUnread,
        *,
        adopt: Callable[[str, list[FilterData]], int],
        drop_queues: Callable[[str], None],
        require_writable: Callable[[], None],
        wake_saves: Callable[[], None],
    ) -> None:
        """Build the four parts over the loaded tables.

        ``adopt`` is that of ``Subscriptions``; ``drop_queues`` removes a topic's entries below its
        note while dispatch is paused; ``require_writable`` raises StoreNotWritable or StoreFailed
        where nothing may change; ``wake_saves`` requests a step of ``table_saves``.
        """
        self.topics = Topics(
            tables.topics,
            store_format,
            log,
            queues,
            deleted,
            clock,
            drop_queues,
            config,
            require_writable,
        )
        topic_of = self.topics.get
        self.offsets = GroupOffsets(
            tables.offsets, topic_of, log, queues, lookups, config, require_writable, expired
        )
        self.groups = Groups(tables.groups, self.offsets, config, require_writable)
        self.subscriptions = Subscriptions(
            *(tables.filters, store_format, topic_of, config, clock, require_writable, adopt),
            self.groups.make,
        )
        self.table_saves = TableSaves((tables.topics, tables.groups, tables.filters), wake_saves)

    def delete_topic(self, name: str) -> TopicDeletion:
        """Delete a topic, the groups' offsets in it and their subscriptions to it.

        Errors as ``Topics.delete``.
        """
        gone = self.topics.delete(name, self.offsets)
        self.subscriptions.forget_topic(name)
        self.offsets.end_leases(lambda _group, topic, _queue_id: topic == name)
        return gone
