"""Metrics of the coordinator for Prometheus; store-writer has the metrics of transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.coordinator.shards import Shards

RESULTS: Final = ("answered", "unanswered", "unreachable")


class CoordinatorMetrics(Collector):
    """Metrics of the coordinator, collected at each scrape; callable from any thread."""

    def __init__(self, registry: CollectorRegistry, shards: Shards, checks: Counter[str]) -> None:
        """``checks``: checks with registered producers, by result."""
        self._shards = shards
        self._checks = checks
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The values at this moment, as ``Collector``."""
        usable = GaugeMetricFamily(
            "mqstore_coordinator_shard_usable",
            "1 while this coordinator can begin and decide transactions of the shard.",
            labels=["shard"],
        )
        for shard in self._shards:
            usable.add_metric([str(shard.ordinal)], shard.trouble is None)
        yield usable
        checks = CounterMetricFamily(
            "mqstore_coordinator_checks",
            "Checks with registered producers, by result: answered, unanswered, unreachable.",
            labels=["result"],
        )
        for result in RESULTS:
            checks.add_metric([result], self._checks[result])
        yield checks
