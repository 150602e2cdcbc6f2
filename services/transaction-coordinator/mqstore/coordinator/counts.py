"""What a coordinator counts, in plain numbers: whoever uses it adds, Prometheus' question reads."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.transactions import Transaction
from mqstore.service.metrics import Histogram

FINISH_BUCKETS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Those of rocketmq_finish_message_latency."""
BATCH_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64)


class Counts:
    """Of one shard, since the process began. Changed by whoever uses the coordinator."""

    def __init__(self) -> None:
        self.begun = 0
        self.decided: Counter[Verdict] = Counter()
        """Transactions."""
        self.messages: Counter[tuple[Verdict, str]] = Counter()
        """Messages of decided transactions, by topic."""
        self.finish_s = Histogram(FINISH_BUCKETS_S)
        """From begin to commit."""
        self.checks_sent = 0
        self.checks_answered = 0
        """Checked transactions that were decided then."""
        self.batches = Histogram(BATCH_BUCKETS)
        """Begins, decisions and checks of one append."""
        self.loads = 0
        self.load_s = 0.0
        """How long the last reading of the half messages took."""

    def settled(self, transaction: Transaction, verdict: Verdict, now_ms: int) -> None:
        """A decision was stored."""
        self.decided[verdict] += 1
        for half in transaction.halves:
            self.messages[verdict, half.topic] += 1
        if verdict is Verdict.COMMIT:
            self.finish_s.observe(max(0, now_ms - transaction.born_ms) / 1000)
        if transaction.check_times and verdict is not Verdict.SET_ASIDE:
            self.checks_answered += 1
