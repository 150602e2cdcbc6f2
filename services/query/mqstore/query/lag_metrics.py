"""How far consumer groups are behind, as metrics: of so many groups and topics at most, looked at
when Prometheus asks.

Names and labels are those of a RocketMQ 5 broker (BrokerMetricsConstant and ConsumerLagCalculator
of 5.4.0). What is saved of a group are its committed offsets alone: so what is ready to be consumed
is what it is behind, and nothing is known to be in flight.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service import logs
from mqstore.service.metrics import RocketmqNames
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import StoreFormat
from mqstore.storage.reads import GroupLags, TopicLag
from mqstore.storage.topic_names import RETRY_PREFIX, is_system_group, is_system_topic

log = logs.get(__name__)

GOOD_S: Final = 1.0
"""One look answers all who ask within this time."""
QUEUES_MAX: Final = 10_000
"""Queues of one look; the topic that passes it is whole."""
LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")
_BY: Final = "by consumer_group, topic, is_retry and is_system"


@dataclass(frozen=True, slots=True)
class _Lag:
    group: str
    is_system: bool
    found: TopicLag

    @property
    def labels(self) -> tuple[str, ...]:
        """As LABELS."""
        is_retry = self.found.topic.startswith(RETRY_PREFIX)
        return self.group, self.found.topic, _flag(is_retry), _flag(self.is_system)


@dataclass(frozen=True, slots=True)
class _Look:
    lags: list[_Lag]
    left_out: int
    """Groups' topics that were too many."""


class LagMetrics(Collector):
    """Collected in any thread; may wait for the disk."""

    def __init__(
        self,
        names: RocketmqNames,
        maximum: int,
        look: Callable[[], tuple[GroupLags, dict[str, list[str]]] | None],
        now_ms: Callable[[], int],
    ) -> None:
        """Of ``maximum`` pairs of group and topic. ``look`` gives the lags of groups, and the
        topics of each; None while there is no store."""
        self._names = names
        self._maximum = maximum
        self._source = look
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._known = _Look([], 0)
        self._good_until = 0.0

    def collect(self) -> Iterable[Metric]:
        found, now_ms = self._now(), self._now_ms()
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
            "Messages deleted before the group consumed them, by consumer_group and topic.",
            labels=LABELS[:2],
        )
        for each in found.lags:
            expired.add_metric(each.labels[:2], each.found.expired)
        yield expired
        yield GaugeMetricFamily(
            "mqstore_consumer_lags_left_out",
            "Topics of groups beyond metricsLagsMax, which have no lag metrics.",
            value=found.left_out,
        )

    def forget(self) -> None:
        """Expire the known lags, because the store was replaced: the next scrape reads them."""
        self._good_until = 0.0

    def _now(self) -> _Look:
        with self._lock:
            if time.monotonic() >= self._good_until:
                try:
                    self._known = self._look()
                except (StorageError, OSError) as error:
                    log.warning("lags of groups cannot be read", error=str(error))
                    self._known = _Look([], 0)
                self._good_until = time.monotonic() + GOOD_S
            return self._known

    def _look(self) -> _Look:
        source = self._source()
        if source is None:
            return _Look([], 0)
        lags, groups = source
        pairs = sorted(_pairs(groups))
        found: list[_Lag] = []
        queues = 0
        for is_system, group, topic in pairs:
            if len(found) == self._maximum or queues >= QUEUES_MAX:
                break
            found.append(_Lag(group, is_system, lags.topic(group, topic)))
            queues += len(found[-1].found.queues)
        return _Look(found, len(pairs) - len(found))


def _pairs(groups: dict[str, list[str]]) -> Iterator[tuple[bool, str, str]]:
    """RocketMQ's own groups and topics last."""
    for group, topics in groups.items():
        for topic in topics:
            is_system = is_system_group(group) or is_system_topic(topic, StoreFormat.V5_X)
            yield is_system, group, topic


def _flag(value: bool) -> str:
    return str(value).lower()
