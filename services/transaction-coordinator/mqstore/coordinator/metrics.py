"""Transactions for Prometheus, under RocketMQ's names where it has them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.coordinator.counts import FINISH_BUCKETS_S
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.shards import Shards
from mqstore.coordinator.transactions import Transaction
from mqstore.service.metrics import OTHER_TOPICS, Histogram, RocketmqNames


class TransactionMetrics(Collector):
    """Read when Prometheus asks, from any thread; of all shards, each by its label."""

    def __init__(
        self,
        registry: CollectorRegistry,
        names: RocketmqNames,
        topics_max: int,
        shards: Shards,
        leads: Callable[[], bool],
        given_up: Callable[[], int],
    ) -> None:
        self._names = names
        self._topics_max = topics_max
        self._shards = shards
        self._leads = leads
        self._given_up = given_up
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        pending = {shard.ordinal: shard.pending for shard in self._shards}
        yield GaugeMetricFamily(
            "mqstore_coordinator_leader", "1 in the coordinator that leads", value=self._leads()
        )
        yield CounterMetricFamily(
            "mqstore_coordinator_lead_given_up",
            "How often this one gave the lead up, as it could do nothing",
            value=self._given_up(),
        )
        yield from self._waiting(pending)
        yield from self._counted()
        yield from self._histograms()
        yield from self._as_rocketmq(pending)

    def _waiting(self, pending: dict[int, list[Transaction]]) -> Iterable[Metric]:
        now_ms = time.time_ns() // 1_000_000
        oldest = {
            ordinal: max((now_ms - each.born_ms for each in found), default=0) / 1000
            for ordinal, found in pending.items()
        }
        for name, text, value in (
            ("pending", "Transactions without a decision", lambda s: len(pending[s.ordinal])),
            ("oldest_seconds", "Age of the oldest of them", lambda s: oldest[s.ordinal]),
            ("set_aside", "Transactions that wait for a person", lambda s: s.set_aside),
            ("checks_waiting", "Due for a check", lambda s: s.coordinator.checks_waiting),
            ("load_seconds", "Last reading of the log", lambda s: s.coordinator.counts.load_s),
        ):
            family = GaugeMetricFamily(f"mqstore_transactions_{name}", text, labels=["shard"])
            for shard in self._shards:
                family.add_metric([str(shard.ordinal)], value(shard))
            yield family

    def _counted(self) -> Iterable[Metric]:
        decided = CounterMetricFamily(
            "mqstore_transactions_decided", "Decisions stored", labels=["shard", "decision"]
        )
        for shard in self._shards:
            for verdict in Verdict:
                count = shard.coordinator.counts.decided[verdict]
                decided.add_metric([str(shard.ordinal), verdict.value], count)
        yield decided
        for name, text in (
            ("begun", "Transactions begun"),
            ("checks_sent", "Checks that producers were sent"),
            ("checks_answered", "Transactions decided after a check"),
            ("loads", "Readings of the half messages: starts, takeovers, unclear answers"),
        ):
            family = CounterMetricFamily(f"mqstore_transactions_{name}", text, labels=["shard"])
            for shard in self._shards:
                count = getattr(shard.coordinator.counts, name)
                family.add_metric([str(shard.ordinal)], count)
            yield family

    def _histograms(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(
            "mqstore_transactions_batch",
            "Begins, decisions and checks of one append",
            labels=["shard"],
        )
        for shard in self._shards:
            batches = shard.coordinator.counts.batches
            family.add_metric([str(shard.ordinal)], batches.buckets(), batches.total)
        yield family

    def _as_rocketmq(self, pending: dict[int, list[Transaction]]) -> Iterable[Metric]:
        halves = Counter(
            half.topic for found in pending.values() for each in found for half in each.halves
        )
        names = self._names
        yield names.by_topic(
            *(GaugeMetricFamily, "half_messages", "Half messages of all topics"),
            self._bounded(halves),
        )
        for verdict, name in ((Verdict.COMMIT, "commit"), (Verdict.ROLLBACK, "rollback")):
            yield names.by_topic(
                *(CounterMetricFamily, f"{name}_messages", f"Total number of {name} messages"),
                self._bounded(self._messages(verdict)),
            )
        finish_s = Histogram(FINISH_BUCKETS_S)
        for shard in self._shards:
            finish_s.add(shard.coordinator.counts.finish_s)
        yield names.histogram("finish_message_latency", "Transaction finish latency", finish_s)

    def _messages(self, verdict: Verdict) -> Counter[str]:
        found: Counter[str] = Counter()
        for shard in self._shards:
            for (kind, topic), count in list(shard.coordinator.counts.messages.items()):
                if kind is verdict:
                    found[topic] += count
        return found

    def _bounded(self, by_topic: Counter[str]) -> dict[str, int]:
        """The largest by themselves, the others together."""
        named = dict(by_topic.most_common(self._topics_max))
        rest = by_topic.total() - sum(named.values())
        return named | ({OTHER_TOPICS: rest} if rest else {})
