"""The consumer groups of a store: those of subscriptionGroup.json, and those with offsets.

A group needs no creation: committing an offset makes it. Source: SubscriptionGroupManager of 4.9.7
and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from mqstore.storage import topic_names
from mqstore.storage.admin.group_offsets import GroupOffsets
from mqstore.storage.errors import GroupUnknown
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
        require_writable: Callable[[], None],
    ) -> None:
        """``require_writable`` raises StoreNotWritable or StoreFailed where nothing may change."""
        self._require_writable = require_writable
        self._table = table
        self._offsets = offsets
        self._lock = Lock()

    def all(self) -> list[Group]:
        """All groups, by name."""
        topics = self._offsets.groups()
        names = self._table.names() | topics.keys()
        return [self._group(name, topics.get(name, [])) for name in sorted(names)]

    def count(self) -> int:
        """The number of all groups."""
        return len(self._table.names() | self._offsets.groups().keys())

    def get(self, name: str) -> Group:
        """The group of this name. Raises GroupNameError, GroupUnknown."""
        topic_names.check_group(name)
        topics = self._offsets.topics_of(name)
        if not topics and self._table.get(name) is None:
            raise GroupUnknown(f"there is no group {name}: it was not created, and has no offsets")
        return self._group(name, topics)

    def config(self, name: str) -> GroupConfig:
        """The config of this group; RocketMQ's default for one that has none."""
        return self._table.get(name) or _default(name)

    def put(self, name: str, change: Callable[[GroupConfig], GroupConfig]) -> Group:
        """Create or change a group; ``change`` is called with its config, or RocketMQ's default.

        Raises GroupNameError, StoreNotWritable, StoreFailed, OSError.
        """
        self._require_writable()
        topic_names.check_own_group(name)
        with self._lock:
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

    def _group(self, name: str, topics: list[str]) -> Group:
        config = self._table.get(name)
        return Group(config or GroupConfig(name), config is not None, tuple(sorted(topics)))
