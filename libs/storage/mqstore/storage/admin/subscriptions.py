"""Subscriptions with SQL92 expressions, by group and topic, kept as a broker keeps them.

A removed subscription is marked dead and kept for filterDataCleanTimeSpan. If the group registers
the same expression again by then, the subscription keeps its birth time. Source:
ConsumerFilterManager of 4.9.7 and 5.4.0. Unlike there, a restart marks no subscription dead:
clients of this store send no heartbeats, and remove their subscriptions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

from mqstore.storage import topic_names
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import SubscriptionUnknown
from mqstore.storage.filter.bloom import BloomFilter
from mqstore.storage.filter.expression import compile_expression
from mqstore.storage.layout import StoreFormat
from mqstore.storage.seams import Clock
from mqstore.storage.tables.config_tables import TopicConfig
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData

SQL92: Final = "SQL92"


class Subscriptions:
    """Registers and removes subscriptions.

    Thread-safe; a change is durable when its call returns.
    """

    def __init__(
        self,
        table: ConsumerFilters,
        store_format: StoreFormat,
        topic_of: Callable[[str], TopicConfig],
        config: StoreConfig,
        clock: Clock,
        require_writable: Callable[[], None],
        adopt: Callable[[str, list[FilterData]], int],
        make_group: Callable[[str], None],
    ) -> None:
        """``topic_of`` raises TopicUnknown; ``require_writable`` raises StoreNotWritable or
        StoreFailed where nothing may change. ``adopt`` gives dispatch a topic's new subscriptions,
        and returns the newest store time that may have been dispatched before. ``make_group`` is
        ``Groups.make``."""
        self.bloom = BloomFilter.of(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._table = table
        self._format = store_format
        self._topic_of = topic_of
        self._kept_ms = config.filter_data_clean_time_span
        self._clock = clock
        self._require_writable = require_writable
        self._adopt = adopt
        self._make_group = make_group
        self._lock = Lock()

    def of(self, group: str) -> list[FilterData]:
        """A group's living subscriptions, by topic. Raises GroupNameError."""
        topic_names.check_group(group)
        return [each for each in self._table.all() if each.group == group and not each.is_dead]

    def get(self, group: str, topic: str) -> FilterData:
        """A group's subscription to a topic. Raises GroupNameError, SubscriptionUnknown."""
        topic_names.check_group(group)
        found = self._table.get(topic, group)
        if found is None or found.is_dead:
            raise SubscriptionUnknown(f"group {group} has no subscription of {topic}")
        return found

    def put(self, group: str, topic: str, expression: str) -> FilterData:
        """Register a subscription. The birth time of a new or changed expression is now.

        Raises GroupNameError, GroupUnknown, LimitReached, TopicUnknown, FilterError,
        StoreNotWritable, StoreFailed, OSError.
        """
        self._require_writable()
        topic_names.check_own_group(group)
        self._topic_of(topic)
        compile_expression(expression, self._format)
        self._make_group(group)
        with self._lock:
            data = self._build_registration(group, topic, expression)
            self._table.put(data)
            self._save()
        return data

    def remove(self, group: str, topic: str) -> None:
        """Mark a subscription dead.

        Raises GroupNameError, SubscriptionUnknown, StoreNotWritable, StoreFailed, OSError.
        """
        self._require_writable()
        with self._lock:
            found = self.get(group, topic)
            self._table.put(replace(found, dead_ms=max(self._clock.now_ms(), found.born_ms)))
            self._save()

    def forget_topic(self, topic: str) -> None:
        """Remove all subscriptions to a deleted topic. Raises OSError."""
        with self._lock:
            if self._table.remove_topic(topic):
                self._save()
                self._adopt(topic, [])

    def adopt_topics(self, topics: list[str]) -> None:
        """Have dispatch use the subscriptions to some topics, which a leader has changed. Their
        bits are in none of the messages that were dispatched here before. Raises OSError."""
        with self._lock:
            for topic in topics:
                newest_ms = self._adopt(topic, self._table.of_topic(topic))
                for data in self._table.of_topic(topic):
                    if data.positions and not data.is_dead and data.born_ms < newest_ms:
                        self._table.put(replace(data, born_ms=newest_ms))
            self._table.save_changes()

    def _build_registration(self, group: str, topic: str, expression: str) -> FilterData:
        now_ms = self._clock.now_ms()
        known = self._table.get(topic, group)
        version = max(now_ms, known.client_version + 1 if known is not None else 0)
        positions = self.bloom.positions(f"{group}#{topic}")
        data = FilterData(
            topic, group, expression, SQL92, version, now_ms, 0, self.bloom.bits, positions
        )
        if known is not None and _meaning(known) != _meaning(data):
            # Invalidate the old bits before dispatch writes those of the new expression.
            self._table.put(replace(data, positions=()))
            self._table.save_changes()
        others = [each for each in self._table.of_topic(topic) if each.group != group]
        newest_ms = self._adopt(topic, [*others, data])
        if known is not None and _meaning(known) == _meaning(data):
            return replace(data, born_ms=known.born_ms)
        # Records with a later store time are dispatched with its bits, also after a clock step.
        return replace(data, born_ms=max(now_ms, newest_ms))

    def _save(self) -> None:
        """Save the table without the subscriptions that died longer than the kept time ago."""
        now_ms = self._clock.now_ms()
        old = [each for each in self._table.dead() if now_ms - each.dead_ms >= self._kept_ms]
        for each in old:
            self._table.remove(each.topic, each.group)
        self._table.save_changes()

        # Last: until the table is saved, readers may use the bits.
        for topic in sorted({each.topic for each in old}):
            self._adopt(topic, self._table.of_topic(topic))


def _meaning(data: FilterData) -> tuple[str, str, int, tuple[int, ...]]:
    return data.expression, data.expression_type, data.bits, data.positions
