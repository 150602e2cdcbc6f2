"""When the producers of which transaction are checked."""

from __future__ import annotations

import math

from mqstore.storage.transactions.halves import Half
from mqstore.storage.transactions.schedule import TIMES_MIN, Rules, Schedule
from mqstore.storage.transactions.table import Transaction
from tests.simulation.clock import SimulatedClock

HOUR_MS = 3_600_000


def _begun(key: str, now_ms: int) -> Transaction:
    half = Half(key, key, 1, "g", "t", 0, now_ms, now_ms, 0, HOUR_MS, 0, 0, 100, b"")
    transaction = Transaction(key, half)
    transaction.add(half)
    return transaction


def test_what_is_decided_long_before_its_check_is_not_kept_until_then() -> None:
    clock = SimulatedClock()
    schedule = Schedule(clock, Rules())
    pending = {}
    for number in range(20 * TIMES_MIN):
        transaction = _begun(str(number), clock.now_ms())
        schedule.begin(transaction)
        if number % 20:
            schedule.drop(transaction)
        else:
            pending[transaction.key] = transaction
        assert len(schedule._times) <= 2 * max(TIMES_MIN, len(pending))
    assert schedule.next_at == HOUR_MS / 1000
    clock.advance(HOUR_MS / 1000)
    assert schedule.advance(clock.monotonic(), pending) == []
    assert {each.key for each in schedule.due()} == pending.keys()


def test_the_next_time_is_that_of_a_check_which_still_counts() -> None:
    clock = SimulatedClock()
    schedule = Schedule(clock, Rules())
    first = _begun("a", clock.now_ms())
    schedule.begin(first)
    clock.advance(1)
    second = _begun("b", clock.now_ms())
    schedule.begin(second)
    next_at = schedule.next_at
    schedule.drop(first)
    assert schedule.next_at == next_at + 1
    schedule.drop(second)
    assert schedule.next_at == math.inf
