"""Pending transactions by age, for Prometheus."""

from __future__ import annotations

from mqstore.writer.transactions.metrics import count_by_age

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def test_a_transaction_counts_for_each_age_that_it_exceeds() -> None:
    born_ms = [NOW_MS, NOW_MS - 5 * MINUTE_MS, NOW_MS - 120 * MINUTE_MS]
    assert count_by_age(born_ms, NOW_MS) == {60: 2, 600: 1, 3_600: 1, 86_400: 0}


def test_an_age_itself_is_not_exceeded_and_a_future_begin_counts_nowhere() -> None:
    born_ms = [NOW_MS - MINUTE_MS, NOW_MS + MINUTE_MS]
    assert set(count_by_age(born_ms, NOW_MS).values()) == {0}
