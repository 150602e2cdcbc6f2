"""Metrics of consumer lag, for a limited number of groups and topics, read at each scrape.

Names and labels are those of a RocketMQ 5 broker (BrokerMetricsConstant and ConsumerLagCalculator
of 5.4.0). They come from the files alone, which have the committed offsets of a group. Therefore
the ready messages equal the lag; store-writer has the metric of the messages in flight.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service import logs
from mqstore.service.metrics import RocketmqNames
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import StoreFormat
from mqstore.storage.reads import GroupLags, TopicLag
from mqstore.storage.topic_names import RETRY_PREFIX, is_system_group, is_system_topic

log = logs.get(__name__)

CACHE_S: Final = 1.0
"""Seconds for which the lags of one scrape serve further scrapes."""
QUEUES_MAX: Final = 10_000
"""Number of queues after which reading stops, at the end of a topic."""
DEAD_TOPICS_MAX: Final = 1_000
"""Number of groups whose dead letters are counted anew for one scrape; the others follow in turn,
and have their last count until then."""
LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")
_BY: Final = "by consumer_group, topic, is_retry and is_system"


@dataclass(frozen=True, slots=True)
class _Lag:
    group: str
    is_system: bool
    found: TopicLag

    @property
    def labels(self) -> tuple[str, ...]:
        """Label values in the order of LABELS."""
        is_retry = self.found.topic.startswith(RETRY_PREFIX)
        return self.group, self.found.topic, _flag(is_retry), _flag(self.is_system)


@dataclass(frozen=True, slots=True)
class LagSource:
    """The content of the metrics: lags of groups, and which groups there are."""

    lags: GroupLags
    topics: dict[str, list[str]]
    """The topics that each group consumes."""
    dead: list[str]
    """Groups with a topic of dead letters."""


@dataclass(frozen=True, slots=True)
class LagOfGroup:
    """The lag of a group in one topic."""

    group: str
    topic: str
    messages: int
    age_ms: int | None
    """Age of the oldest message that is not consumed; None if it cannot be read."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    lags: list[_Lag] = field(default_factory=list)
    left_out: int = 0
    """Number of pairs of group and topic without metrics, because they exceed a limit."""
    dead: dict[str, int] = field(default_factory=dict)
    """Number of dead letters by group."""
    dead_left_out: int = 0
    """Number of groups with dead letters that exceed a limit."""


class LagMetrics(Collector):
    """Collector of the lag metrics. Thread-safe; a scrape may wait for the disk."""

    def __init__(
        self,
        names: RocketmqNames,
        maximum: int,
        source: Callable[[], LagSource | None],
        now_ms: Callable[[], int],
    ) -> None:
        """Collect the metrics of at most ``maximum`` pairs of group and topic, and of as many
        groups with dead letters. ``source`` returns None while no store is open."""
        self._names = names
        self._maximum = maximum
        self._source = source
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._snapshot = _Snapshot()
        self._fresh_until = 0.0
        self._dead: dict[str, int] = {}
        """The last count of dead letters of each group that was counted."""
        self._dead_turn = 0

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics. If the lags cannot be read, log why and yield none of them."""
        found, now_ms = self._current(), self._now_ms()
        behind = {each.labels: float(each.found.lag) for each in found.lags}
        ages = {each.labels: each.found.age_ms(now_ms) for each in found.lags}
        known = {labels: float(age) for labels, age in ages.items() if age is not None}
        gauges = self._names.gauges
        for name in ("consumer_lag_messages", "consumer_ready_messages"):
            yield gauges(name, f"Messages that the group has not consumed, {_BY}.", LABELS, behind)
        text = f"Age in milliseconds of the oldest message that the group has not consumed, {_BY}."
        text += " 0: it has consumed all; no sample: the message cannot be read."
        for name in ("consumer_lag_latency", "consumer_queueing_latency"):
            yield gauges(name, text, LABELS, known)
        expired = GaugeMetricFamily(
            "mqstore_consumer_expired_messages",
            "Messages deleted before the group consumed them, and that its offset has not passed,"
            " by consumer_group and topic.",
            labels=LABELS[:2],
        )
        total = CounterMetricFamily(
            "mqstore_consumer_expired_unread",
            "Messages deleted before the group consumed them, by consumer_group and topic.",
            labels=LABELS[:2],
        )
        for each in found.lags:
            expired.add_metric(each.labels[:2], each.found.expired)
            total.add_metric(each.labels[:2], each.found.expired_total)
        yield expired
        yield total
        yield GaugeMetricFamily(
            "mqstore_consumer_lags_left_out",
            "Topics of groups beyond metricsLagsMax, which have no lag metrics.",
            value=found.left_out,
        )
        dead = GaugeMetricFamily(
            "mqstore_dead_letters",
            "Dead letters of the group that were not resent or purged, by consumer_group.",
            labels=LABELS[:1],
        )
        for group, count in found.dead.items():
            dead.add_metric([group], count)
        yield dead
        yield GaugeMetricFamily(
            "mqstore_dead_letters_left_out",
            "Groups with dead letters beyond metricsLagsMax, which have no metric of their own.",
            value=found.dead_left_out,
        )

    def current(self) -> tuple[list[LagOfGroup], dict[str, int]]:
        """Return lags of groups other than RocketMQ's own, and dead letters by group, the most
        first. Waits for the disk."""
        found, now_ms = self._current(), self._now_ms()
        lags = [
            LagOfGroup(each.group, each.found.topic, each.found.lag, each.found.age_ms(now_ms))
            for each in found.lags
            if not each.is_system
        ]
        return lags, {group: count for group, count in found.dead.items() if count}

    def forget(self) -> None:
        """Expire the known lags, because the store was replaced: the next scrape reads them."""
        self._fresh_until = 0.0
        self._dead = {}

    def _current(self) -> _Snapshot:
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                try:
                    self._snapshot = self._read()
                except (StorageError, OSError) as error:
                    log.warning("lags of groups cannot be read", error=str(error))
                    self._snapshot = _Snapshot()
                self._fresh_until = time.monotonic() + CACHE_S
            return self._snapshot

    def _read(self) -> _Snapshot:
        source = self._source()
        if source is None:
            return _Snapshot()
        count = sum(map(len, source.topics.values()))
        pairs = heapq.nsmallest(self._maximum, _pairs(source.topics))  # RocketMQ's own last
        found: list[_Lag] = []
        queues = 0
        for is_system, group, topic in pairs:
            if queues >= QUEUES_MAX:
                break
            found.append(_Lag(group, is_system, source.lags.topic(group, topic)))
            queues += len(found[-1].found.queues)
        dead = self._dead = self._count_dead(source)
        most = heapq.nsmallest(self._maximum, dead, key=lambda each: (-dead[each], each))
        kept = {each: dead[each] for each in most}
        dead_left_out = sum(count > 0 for count in dead.values()) - sum(
            count > 0 for count in kept.values()
        )
        return _Snapshot(found, count - len(found), kept, dead_left_out)

    def _count_dead(self, source: LagSource) -> dict[str, int]:
        """The dead letters by group, DEAD_TOPICS_MAX of them counted anew."""
        groups, start = source.dead, self._dead_turn
        chosen = [*groups[start : start + DEAD_TOPICS_MAX]]
        self._dead_turn = start + len(chosen) if start + len(chosen) < len(groups) else 0
        counted = {each: source.lags.dead_letters(each) for each in chosen}
        known = {each: self._dead[each] for each in groups if each in self._dead}
        return known | counted


def _pairs(groups: dict[str, list[str]]) -> Iterator[tuple[bool, str, str]]:
    """Yield each pair of group and topic with whether it is RocketMQ's own."""
    for group, topics in groups.items():
        for topic in topics:
            is_system = is_system_group(group) or is_system_topic(topic, StoreFormat.V5_X)
            yield is_system, group, topic


def _flag(value: bool) -> str:
    return str(value).lower()
