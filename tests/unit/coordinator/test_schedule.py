"""When who is asked about which transaction."""

from __future__ import annotations

from mqstore.coordinator.halves import Half
from mqstore.coordinator.schedule import TIMES_MIN, Rules, Schedule
from mqstore.coordinator.transactions import Transaction
from tests.simulation.clock import SimulatedClock

HOUR_MS = 3_600_000


def _begun(key: str, now_ms: int) -> Transaction:
    half = Half(key, key, 1, "g", "t", 0, now_ms, now_ms, 0, HOUR_MS, 0, 0, b"")
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
