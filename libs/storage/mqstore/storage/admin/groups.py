"""The consumer groups of a store: those of subscriptionGroup.json, and those with offsets.

With autoCreateSubscriptionGroup a group needs no creation: its first use makes it, as in RocketMQ,
within maxGroups. Source: SubscriptionGroupManager of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import GroupOffsets
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import GroupUnknown, LimitReached
from mqstore.storage.tables.subscription_groups import GroupConfig, SubscriptionGroups


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group."""

    config: GroupConfig
    is_configured: bool
    """Whether subscriptionGroup.json holds the group; else ``config`` is RocketMQ's default."""
    topics: tuple[str, ...]
    """The topics in which the group has offsets, by name."""


_default = lru_cache(1024)(GroupConfig)


class Groups:
    """Lists, changes and deletes groups. Thread-safe; a change is durable when its call returns."""

    def __init__(
        self,
        table: SubscriptionGroups,
        offsets: GroupOffsets,
        config: StoreConfig,
        require_writable: Callable[[], None],
    ) -> None:
        """``require_writable`` raises StoreNotWritable or StoreFailed where nothing may change."""
        self._require_writable = require_writable
        self._table = table
        self._offsets = offsets
        self._creates = config.auto_create_subscription_group
        self._maximum = config.max_groups
        self._lock = Lock()

    def all(self) -> list[Group]:
        """All groups, by name."""
        topics = self._offsets.groups()
        names = self._table.names() | topics.keys()
        return [self._group(name, topics.get(name, [])) for name in sorted(names)]

    def page(self, after: str, limit: int) -> tuple[list[Group], bool]:
        """The groups behind a name, by name, and whether there are more."""
        names = self._table.names() | self._offsets.group_names()
        first = heapq.nsmallest(limit + 1, (name for name in names if name > after))
        found = [self._group(name, self._offsets.topics_of(name)) for name in first[:limit]]
        return found, len(first) > limit

    def count(self) -> int:
        """The number of all groups."""
        configured = self._table.names()
        return len(configured) + len(self._offsets.group_names() - configured)

    def get(self, name: str) -> Group:
        """The group of this name. Raises GroupNameError, GroupUnknown."""
        topic_names.check_group(name)
        topics = self._offsets.topics_of(name)
        if not topics and self._table.get(name) is None:
            raise GroupUnknown(f"there is no group {name}: it was not created, and has no offsets")
        return self._group(name, topics)

    def exists(self, name: str) -> bool:
        """Whether a group was created or has offsets."""
        return self._table.get(name) is not None or self._offsets.has_group(name)

    def use(self, name: str) -> GroupConfig:
        """The config of a group that consumes: one that exists, or that its use may make.

        Raises GroupNameError, GroupUnknown, LimitReached.
        """
        topic_names.check_group(name)
        config = self._table.get(name)
        if config is not None:
            return config
        if not self._offsets.has_group(name):
            if not self._creates and not topic_names.is_system_group(name):
                raise GroupUnknown(
                    f"there is no group {name}, and autoCreateSubscriptionGroup is false; create"
                    f" it: mqstore group update {name}"
                )
            self._require_room(name)
        return _default(name)

    def require_consuming(self, name: str, topics: Sequence[str]) -> None:
        """Raise GroupDisabled where a group may not consume, or not one of these topics."""
        self._table.require_consuming(name, topics)

    def make(self, name: str) -> None:
        """Make a group that has neither a config nor offsets, where its use may make it.

        Raises GroupNameError, GroupUnknown, LimitReached, OSError.
        """
        with self._lock:
            self.use(name)
            if self.exists(name):
                return
            self._table.put(GroupConfig(name))
        self._table.save_changes()

    def put(self, name: str, change: Callable[[GroupConfig], GroupConfig]) -> Group:
        """Create or change a group; ``change`` is called with its config, or RocketMQ's default.

        Raises GroupNameError, LimitReached, StoreNotWritable, StoreFailed, OSError.
        """
        self._require_writable()
        topic_names.check_own_group(name)
        with self._lock:
            if not self.exists(name):
                self._require_room(name)
            self._table.put(change(self._table.get(name) or GroupConfig(name)))
        self._table.save_changes()
        return self.get(name)

    def delete(self, name: str, *, with_offsets: bool) -> None:
        """Delete a group's config and, with ``with_offsets``, its offsets (RocketMQ's cleanOffset).

        Raises GroupNameError, GroupUnknown, StoreNotWritable, FlushTimeout, StoreFailed, OSError.
        """
        self._require_writable()
        topic_names.check_own_group(name)
        with self._lock:
            self.get(name)
            if self._table.get(name) is not None:
                self._table.remove(name)
                self._table.save_changes()
            if with_offsets:
                self._offsets.forget_group(name)
        if with_offsets:
            self._offsets.end_leases(lambda group, _topic, _queue_id: group == name)

    def _require_room(self, name: str) -> None:
        """Raise LimitReached unless one more group may be."""
        if (count := self.count()) >= self._maximum:
            raise LimitReached(
                f"group {name} would be one more than {count}", "maxGroups", self._maximum
            )

    def _group(self, name: str, topics: list[str]) -> Group:
        config = self._table.get(name)
        return Group(config or GroupConfig(name), config is not None, tuple(sorted(topics)))
