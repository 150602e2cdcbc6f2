"""Counters of the engine."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mqstore.storage._kernel import ValueCounts
from mqstore.storage.transactions.halves import Verdict
from mqstore.storage.transactions.table import Transaction

FINISH_BUCKETS_S: Final = (5.0, 60.0, 600.0, 3_600.0, 43_200.0, 86_400.0)
"""The buckets of rocketmq_finish_message_latency."""
BATCH_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Counts:
    """Counters of one store, since the process began. Changed by the engine under its lock."""

    def __init__(self) -> None:
        self.begun = 0
        self.decided: Counter[Verdict] = Counter()
        """Decided transactions."""
        self.messages: Counter[tuple[Verdict, str]] = Counter()
        """Messages of decided transactions, by topic."""
        self.finish_s = ValueCounts(FINISH_BUCKETS_S)
        """Seconds from begin to commit."""
        self.checks_sent = 0
        self.checks_answered = 0
        """Checked transactions that were then decided."""
        self.batches = ValueCounts(BATCH_BUCKETS)
        """Begins, decisions and checks of one append."""
        self.loads = 0
        self.load_s = 0.0
        """Duration of the last read of the half messages."""

    def note_settled(self, transaction: Transaction, verdict: Verdict, now_ms: int) -> None:
        """Count a stored decision."""
        self.decided[verdict] += 1
        for half in transaction.halves:
            self.messages[verdict, half.topic] += 1
        if verdict is Verdict.COMMIT:
            self.finish_s.observe(max(0, now_ms - transaction.born_ms) / 1000)
        if transaction.check_times and verdict is not Verdict.SET_ASIDE:
            self.checks_answered += 1
