"""Transactions for Prometheus, under RocketMQ's names where it has them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqstore.service.metrics import OTHER_TOPICS, Histogram, PacedValue, RocketmqNames
from mqstore.storage.exchanges import ValueCounts
from mqstore.storage.transactions import TransactionEngine, Verdict

PENDING_AGES_S: Final = (60, 600, 3_600, 86_400)
"""Ages by which pending transactions are counted."""


class TransactionMetrics(Collector):
    """Read when Prometheus scrapes, from any thread; nothing before the store is open."""

    def __init__(
        self,
        registry: CollectorRegistry,
        names: RocketmqNames,
        topics_max: int,
        shard: int,
        engine: Callable[[], TransactionEngine | None],
    ) -> None:
        self._names = names
        self._topics_max = topics_max
        self._shard = str(shard)
        self._engine = engine
        self._pending = PacedValue(self._read_pending)
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The values at this moment, as ``Collector``; none before the store is open."""
        engine = self._engine()
        if engine is None:
            return
        yield from self._waiting(engine)
        yield from self._counted(engine)
        yield from self._as_rocketmq(engine)

    def _read_pending(self) -> tuple[list[int], Counter[str]]:
        engine = self._engine()
        return ([], Counter()) if engine is None else (engine.pending_born_ms, engine.half_counts)

    def _waiting(self, engine: TransactionEngine) -> Iterable[Metric]:
        (born_ms, _), now_ms = self._pending.get(), time.time_ns() // 1_000_000
        set_aside, waiting = engine.set_aside_count, engine.checks_waiting
        load_s = engine.counts.load_s
        oldest_s = max(0, now_ms - min(born_ms, default=now_ms)) / 1000
        for name, text, value in (
            ("pending", "Transactions without a decision, by shard.", engine.pending_count),
            ("oldest_seconds", "Age of the oldest pending transaction, by shard.", oldest_s),
            ("set_aside", "Transactions that wait for an operator, by shard.", set_aside),
            ("checks_waiting", "Checks that are due and no producer has taken, by shard.", waiting),
            ("load_seconds", "Seconds of the last read of the half messages, by shard.", load_s),
        ):
            family = GaugeMetricFamily(f"mqstore_transactions_{name}", text, labels=["shard"])
            family.add_metric([self._shard], value)
            yield family
        by_age = GaugeMetricFamily(
            "mqstore_transactions_pending_by_age",
            "Transactions without a decision that are older than older_than_seconds, by shard.",
            labels=["shard", "older_than_seconds"],
        )
        for bound_s, count in count_by_age(born_ms, now_ms).items():
            by_age.add_metric([self._shard, str(bound_s)], count)
        yield by_age

    def _counted(self, engine: TransactionEngine) -> Iterable[Metric]:
        counts = engine.counts
        decided = CounterMetricFamily(
            "mqstore_transactions_decided",
            "Decisions stored, by shard and decision: commit, rollback, set-aside.",
            labels=["shard", "decision"],
        )
        for verdict in Verdict:
            decided.add_metric([self._shard, verdict.value], counts.decided[verdict])
        yield decided
        for name, text, count in (
            ("begun", "Transactions begun, by shard.", counts.begun),
            ("checks_sent", "Checks sent to producers, by shard.", counts.checks_sent),
            ("checks_answered", "Decisions after a check, by shard.", counts.checks_answered),
            ("loads", "Reads of the half messages after an opening, by shard.", counts.loads),
        ):
            family = CounterMetricFamily(f"mqstore_transactions_{name}", text, labels=["shard"])
            family.add_metric([self._shard], count)
            yield family
        batches = HistogramMetricFamily(
            "mqstore_transactions_batch",
            "Begins, decisions and checks in one append to the log, by shard.",
            labels=["shard"],
        )
        found = _histogram(counts.batches)
        batches.add_metric([self._shard], found.buckets(), found.total)
        yield batches

    def _as_rocketmq(self, engine: TransactionEngine) -> Iterable[Metric]:
        names, counts = self._names, engine.counts
        yield names.by_topic(
            *("gauge", "half_messages", "Half messages without a decision, by topic."),
            self._bounded(self._pending.get()[1]),
        )
        for verdict, name in ((Verdict.COMMIT, "commit"), (Verdict.ROLLBACK, "rollback")):
            messages = Counter(
                {
                    topic: count
                    for (kind, topic), count in list(counts.messages.items())
                    if kind is verdict
                }
            )
            text = f"Messages of transactions with the decision {name}, by topic."
            yield names.by_topic("counter", f"{name}_messages", text, self._bounded(messages))
        finish_s = _histogram(counts.finish_s)
        text = "Seconds from the begin of a transaction to its decision."
        yield names.histogram("finish_message_latency", text, finish_s)

    def _bounded(self, by_topic: Counter[str]) -> dict[str, int]:
        """The largest by themselves, the others together."""
        named = dict(by_topic.most_common(self._topics_max))
        rest = by_topic.total() - sum(named.values())
        return named | ({OTHER_TOPICS: rest} if rest else {})


def count_by_age(born_ms: Sequence[int], now_ms: int) -> dict[int, int]:
    """Return how many are older than each of PENDING_AGES_S, by that age."""
    return {s: sum(now_ms - each > s * 1000 for each in born_ms) for s in PENDING_AGES_S}


def _histogram(found: ValueCounts) -> Histogram:
    made = Histogram(found.bounds)
    made.add(found)
    return made
