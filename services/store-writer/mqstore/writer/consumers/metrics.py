"""Messages of groups by state and members of ordered groups, for Prometheus.

RocketMQ's names where it has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service.metrics import PacedValue, RocketmqNames
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import StoreFormat
from mqstore.storage.shared_groups import SharedGroups
from mqstore.storage.topic_names import RETRY_PREFIX, is_system_group, is_system_topic

LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


class _Counts(NamedTuple):
    leased: Counter[tuple[str, str]]
    """By group and topic."""
    returned: Mapping[str, int] | None
    """By group."""
    members: Mapping[str, tuple[int, int]]
    """Members, and queues without one, by ordered group."""


class GroupStateMetrics(Collector):
    """Read when Prometheus scrapes, from any thread; nothing before the store is open."""

    def __init__(
        self,
        registry: CollectorRegistry,
        names: RocketmqNames,
        maximum: int,
        groups: Callable[[], SharedGroups | None],
    ) -> None:
        """Collect the metrics of at most ``maximum`` pairs of group and topic."""
        self._names = names
        self._maximum = maximum
        self._groups = groups
        self._counts = PacedValue(self._count)
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The values at this moment, as ``Collector``."""
        leased, returned, members = self._counts.get()
        text = "Messages that are leased to consumers, by consumer_group, topic, is_retry and"
        values = {_labels(*pair): float(n) for pair, n in leased.most_common(self._maximum)}
        yield self._names.gauges("consumer_inflight_messages", f"{text} is_system.", LABELS, values)
        delayed = GaugeMetricFamily(
            "mqstore_consumer_delayed_messages",
            "Returned messages whose delay has not ended, by consumer_group. No sample: none, or"
            " more than 10,000 delayed messages wait.",
            labels=LABELS[:1],
        )
        for group, count in Counter(returned or {}).most_common(self._maximum):
            delayed.add_metric([group], count)
        yield delayed
        yield from self._members(members)

    def _count(self) -> _Counts:
        groups = self._groups()
        leased: Counter[tuple[str, str]] = Counter()
        if groups is None:
            return _Counts(leased, {}, {})
        for place, counts in groups.pending().items():
            leased[place.group, place.topic] += counts.leased
        members: Mapping[str, tuple[int, int]] = {}
        with suppress(OSError, StorageError):  # ended sessions that cannot be saved now
            members = groups.count_members()
        return _Counts(leased, groups.count_returned(), members)

    def _members(self, counts: Mapping[str, tuple[int, int]]) -> Iterable[Metric]:
        members = GaugeMetricFamily(
            "mqstore_consumer_group_members",
            "Members of ordered groups, by consumer_group.",
            labels=LABELS[:1],
        )
        unheld = GaugeMetricFamily(
            "mqstore_consumer_group_queues_without_member",
            "Queues of ordered groups without a member, by consumer_group: all of them after the"
            " session of the last member ended.",
            labels=LABELS[:1],
        )
        for group, (count, queues) in islice(counts.items(), self._maximum):
            members.add_metric([group], count)
            unheld.add_metric([group], queues)
        yield members
        yield unheld


def _labels(group: str, topic: str) -> tuple[str, ...]:
    is_system = is_system_group(group) or is_system_topic(topic, StoreFormat.V5_X)
    return group, topic, _flag(topic.startswith(RETRY_PREFIX)), _flag(is_system)


def _flag(value: bool) -> str:
    return str(value).lower()
