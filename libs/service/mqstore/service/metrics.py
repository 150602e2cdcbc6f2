"""Prometheus metrics that every service has; a service adds its own to ``registry``.

Requests are counted in plain dictionaries on the event loop and turned into Prometheus' form when
it asks: its own counters cost more than the rest of a produce request's bookkeeping.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.service.limits import Limits

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 30)


class Latency:
    """A histogram of seconds. Changed by the event loop only."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        cumulative = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self.counts, strict=True):
            cumulative += count
            found.append((bound, cumulative))
        return found


class HttpMetrics(Collector):
    """Requests by route, method and status."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, limits: Limits) -> None:
        self.in_flight = 0
        self._limits = limits
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: defaultdict[str, Latency] = defaultdict(Latency)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer. ``route`` is a template, so that clients cannot make labels."""
        self._requests[route, method, status] += 1
        self._seconds[route].observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "mqstore_http_requests", "Requests answered", labels=("route", "method", "status")
        )
        for (route, method, status), count in list(self._requests.items()):
            requests.add_metric((route, method, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "mqstore_http_request_seconds",
            "Time from the request's headers to the end of its answer",
            labels=("route",),
        )
        for route, latency in list(self._seconds.items()):
            seconds.add_metric((route,), latency.buckets(), latency.total)
        yield seconds
        yield GaugeMetricFamily(
            "mqstore_http_in_flight", "Requests being answered", value=self.in_flight
        )
        yield from self._of_limits()

    def _of_limits(self) -> Iterable[Metric]:
        limits = self._limits
        held = GaugeMetricFamily("mqstore_limit_held", "What is taken of a limit", labels=["limit"])
        refused = CounterMetricFamily(
            "mqstore_limit_refused",
            "What was refused because of a limit",
            labels=["limit", "problem"],
        )
        for name, budget in (
            ("connections", limits.connections),
            ("requests", limits.requests),
            ("bytes", limits.memory),
        ):
            held.add_metric([name], budget.taken)
            for problem, count in budget.refused.items():
                refused.add_metric([name, problem], count)
        yield held
        yield refused
