"""Prometheus metrics that every service has; a service adds its own to ``registry``.

Requests are counted in dictionaries on the event loop, and converted to Prometheus' metrics when
``/metrics`` is requested: Prometheus' own counters cost more than the rest of a request's
bookkeeping.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Final, Generic, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.service.busiest import Busiest
from mqstore.service.exposition import LabelledFamily, render
from mqstore.service.limits import Limits
from mqstore.service.settings import Settings
from mqstore.storage.exchanges import ValueCounts

RPC_BUCKETS_S: Final = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1, 2, 3)
"""Bounds of rocketmq_rpc_latency, in seconds; that metric is in milliseconds."""
BUCKETS_S: Final = tuple(
    sorted({*RPC_BUCKETS_S, 0.0005, 0.0025, 0.025, 0.05, 0.25, 0.5, 2.5, 5, 30})
)
REQUEST_CODES: Final = {
    ("POST", "/v1/topics/{topic}/messages"): "send_message",
    ("GET", "/v1/topics/{topic}/queues/{queue}/messages"): "pull_message",
    ("GET", "/v1/topics/{topic}/queues/{queue}/offset"): "search_offset_by_timestamp",
    ("GET", "/v1/topics/{topic}/messages"): "query_message",
    ("GET", "/v1/messages/{id}"): "view_message_by_id",
}
"""Routes, with the request code of RocketMQ that has the same function."""
OTHER_TOPICS: Final = "mqstore-other-topics"
"""Label of all topics beyond metricsTopicsMax together. A topic could have this name; none is
expected to."""
COUNTED_MAX: Final = 20_000
"""Number of pairs of topic and label that are counted apart, about 350 bytes each: clients choose
the names of groups."""

PACE: Final = 20
"""Time between two reads of a value, as a multiple of what a read takes."""
PACED_FROM_S: Final = 0.01
"""Least time of a read after which the value is kept."""
Value = TypeVar("Value")

TRAFFIC_TEXTS: Final = {
    "in": "stored, by topic, message_type (normal, delay, transaction) and is_system. A half "
    "message counts under RMQ_SYS_TRANS_HALF_TOPIC, and a committed one also under its own topic.",
    "out": "returned by pulls (query) and receives (store-writer), by topic, consumer_group (empty "
    "if a pull names none) and is_system.",
}
"""Ends of the helps of incoming and outgoing traffic."""


class PacedValue(Generic[Value]):
    """A value that a scrape reads, whose cost grows with the store: one that takes long is read
    for a twentieth of the time at most, and kept in between. Thread-safe."""

    def __init__(
        self, read: Callable[[], Value], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._now = now
        self._lock = Lock()
        self._kept: tuple[Value] | None = None
        self._until = 0.0

    def get(self) -> Value:
        """The value, read anew if the last read is paid for. Raises what the read raises."""
        with self._lock:
            began = self._now()
            if self._kept is None or began >= self._until:
                self._kept = (self._read(),)
                took = (ended := self._now()) - began
                self._until = ended + (took * PACE if took >= PACED_FROM_S else 0)
            return self._kept[0]


class Histogram(ValueCounts):
    """Counts of values by upper bound. Thread-safe."""

    __slots__ = ()

    def __init__(self, bounds: tuple[float, ...] = BUCKETS_S) -> None:
        """``bounds`` are ascending; those of a latency are in seconds."""
        super().__init__(bounds)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def buckets(
        self, bounds: tuple[float, ...] | None = None, scale: float = 1
    ) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, in Prometheus' form.

        ``bounds`` selects some of the bounds; ``scale`` converts them to another unit.
        """
        wanted = self.bounds if bounds is None else bounds
        cumulative = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip(self.bounds, self.counts, strict=False):
            cumulative += count
            if bound in wanted:
                found.append((f"{bound * scale:g}", cumulative))
        return [*found, ("+Inf", self.count)]


class Traffic:
    """Counts of messages and bytes by topic and one more label. Changed by the event loop only.

    ``busiest`` returns those to export. A pair of topic and label beyond ``COUNTED_MAX``, or beyond
    ten times those to export, is counted with the others.
    """

    __slots__ = ("_busiest", "_counted_max", "_rest_label", "counts")

    def __init__(self, topics_max: int, rest_label: str | None = None) -> None:
        """Export at most ``topics_max`` pairs by name, and the sum of the others of each label, or
        of all with the label ``rest_label``."""
        self.counts: dict[tuple[str, str], list[int]] = {}
        """Messages and bytes, by topic and label."""
        self._rest_label = rest_label
        self._counted_max = max(COUNTED_MAX, 10 * topics_max)
        self._busiest = Busiest(topics_max, self._rest)

    def count(self, topic: str, label: str, messages: int, size: int) -> None:
        """Count messages of ``size`` bytes together."""
        found = self.counts.get((topic, label))
        if found is None:
            found = self.of(topic, label)
        found[0] += messages
        found[1] += size

    def of(self, topic: str, label: str) -> list[int]:
        """Messages and bytes of a topic and label, to add to."""
        key = topic, label
        if key not in self.counts and len(self.counts) >= self._counted_max:
            key = self._rest(key)
        return self.counts.setdefault(key, [0, 0])

    def busiest(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Messages and bytes to export, by topic and label. One thread at a time."""
        return self._busiest.select(self.counts)

    def _rest(self, key: tuple[str, str]) -> tuple[str, str]:
        return OTHER_TOPICS, key[1] if self._rest_label is None else self._rest_label


class RocketmqNames:
    """Metrics under the names and labels of a RocketMQ 5 broker, so that its dashboards have them.

    Source: BrokerMetricsConstant, DefaultStoreMetricsConstant, RemotingMetricsConstant of 5.4.0.
    """

    def __init__(self, settings: Settings) -> None:
        node_id = settings.broker_name or f"mqstore-{settings.shard}"
        self._node = {
            "cluster": settings.broker_cluster_name,
            "node_type": "broker",
            "node_id": node_id,
        }

    def gauge(self, name: str, text: str, value: float, **labels: str) -> GaugeMetricFamily:
        """Return a gauge with one value; ``text`` is its help."""
        family = GaugeMetricFamily(f"rocketmq_{name}", text, labels=[*self._node, *labels])
        family.add_metric([*self._node.values(), *labels.values()], value)
        return family

    def stored(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        """Return a gauge of the store, with the labels storage_type and storage_medium."""
        return self.gauge(name, text, value, storage_type="local", storage_medium="disk")

    def histogram(self, name: str, text: str, values: Histogram) -> HistogramMetricFamily:
        """Return a histogram without further labels."""
        family = HistogramMetricFamily(f"rocketmq_{name}", text, labels=[*self._node])
        family.add_metric([*self._node.values()], values.buckets(), values.total)
        return family

    def by_topic(self, kind: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
        """Return a counter or gauge (``kind``) with one value for each topic."""
        return self._labelled(kind, name, text, ("topic",), {(k,): v for k, v in values.items()})

    def gauges(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        values: Mapping[tuple[str, ...], float],
    ) -> Metric:
        """Return a gauge with one value for each combination of label values."""
        return self._labelled("gauge", name, text, labels, values)

    def traffic(
        self, direction: str, traffic: Traffic, label: str, is_system: Callable[[str], bool]
    ) -> Iterable[Metric]:
        """Return the counters of messages and bytes; ``direction`` is in or out."""
        labels = ("topic", label, "is_system")
        text = TRAFFIC_TEXTS[direction]
        found: dict[tuple[str, ...], tuple[int, ...]] = {
            (topic, value, str(is_system(topic)).lower()): counts
            for (topic, value), counts in traffic.busiest().items()
        }
        for position, (name, what) in enumerate(
            (("messages", "Messages"), ("throughput", "Bytes of the records"))
        ):
            values = {of: counts[position] for of, counts in found.items()}
            full_name = f"{name}_{direction}"
            yield self._labelled("counter", full_name, f"{what} {text}", labels, values)

    def _labelled(
        self,
        kind: str,
        name: str,
        text: str,
        labels: Sequence[str],
        values: Mapping[tuple[str, ...], float],
    ) -> Metric:
        node = tuple(self._node.values())
        with_node = {(*node, *of): value for of, value in values.items()}
        return LabelledFamily(kind, f"rocketmq_{name}", text, (*self._node, *labels), with_node)

    def rpc_latency(
        self, answered: Iterable[tuple[tuple[str, str, int], Histogram]]
    ) -> HistogramMetricFamily:
        """Return the latency in milliseconds of the routes in REQUEST_CODES."""
        labels = ("protocol_type", "request_code", "response_code")
        family = HistogramMetricFamily(
            "rocketmq_rpc_latency",
            "Milliseconds per request that RocketMQ has too, by request_code (its name there) and "
            "response_code (the HTTP status).",
            labels=[*self._node, *labels],
        )
        for (route, method, status), seconds in answered:
            code = REQUEST_CODES.get((method, route))
            if code is not None:
                of = [*self._node.values(), "http", code, str(status)]
                family.add_metric(of, seconds.buckets(RPC_BUCKETS_S, 1000), seconds.total * 1000)
        return family


class HttpMetrics(Collector):
    """Counts of requests by route, method and status, and the registry of all metrics."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, limits: Limits, names: RocketmqNames) -> None:
        self.in_flight = 0
        self.rocketmq = names
        self._limits = limits
        self._seconds: defaultdict[tuple[str, str, int], Histogram] = defaultdict(Histogram)
        self._problems: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one reply. ``route`` is a template, so that clients cannot create labels."""
        self.latency(route, method, status).observe(seconds)

    def latency(self, route: str, method: str, status: int) -> Histogram:
        """Seconds of the replies of a route with this status."""
        return self._seconds[route, method, status]

    def refused(self, route: str, problem: str) -> None:
        """Count one reply that was a problem, by the problem's name."""
        self._problems[route, problem] += 1

    def render(self) -> bytes:
        """Return all metrics of the registry in Prometheus' text format."""
        return render(self.registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of requests and limits; Prometheus' registry calls it."""
        answered = list(self._seconds.items())
        requests = CounterMetricFamily(
            "mqstore_http_requests",
            "Requests that were replied to, by route, method and status.",
            labels=("route", "method", "status"),
        )
        by_route: defaultdict[str, Histogram] = defaultdict(Histogram)
        for (route, method, status), seconds in answered:
            requests.add_metric((route, method, str(status)), seconds.count)
            by_route[route].add(seconds)
        yield requests
        latency = HistogramMetricFamily(
            "mqstore_http_request_seconds",
            "Seconds from the request's headers to the end of the reply, by route.",
            labels=("route",),
        )
        for route, seconds in by_route.items():
            latency.add_metric((route,), seconds.buckets(), seconds.total)
        yield latency
        yield self.rocketmq.rpc_latency(answered)
        refused = CounterMetricFamily(
            "mqstore_problems",
            "Error replies, by route and problem (its name); on the produce route these are the "
            "refused puts.",
            labels=("route", "problem"),
        )
        for labels, count in list(self._problems.items()):
            refused.add_metric(labels, count)
        yield refused
        yield GaugeMetricFamily(
            "mqstore_http_in_flight",
            "Requests in progress, long polls included.",
            value=self.in_flight,
        )
        yield from self._of_limits()

    def _of_limits(self) -> Iterable[Metric]:
        limits = self._limits
        held = GaugeMetricFamily(
            "mqstore_limit_held",
            "Use of each limit: open connections, requests in progress, bytes held. At its "
            "setting, further requests are refused.",
            labels=["limit"],
        )
        refused = CounterMetricFamily(
            "mqstore_limit_refused",
            "Connections and requests refused by a limit, by problem: overloaded (the whole "
            "service) or client-over-share (one address).",
            labels=["limit", "problem"],
        )
        for name, budget in (
            ("connections", limits.connections),
            ("requests", limits.requests),
            ("bytes", limits.memory),
            ("polls", limits.polls),
        ):
            held.add_metric([name], budget.taken)
            for problem, count in budget.refused.items():
                refused.add_metric([name, problem], count)
        yield held
        yield refused
