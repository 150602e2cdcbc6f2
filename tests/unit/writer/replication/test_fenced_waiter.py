"""Waits of a leader that may have lost its lease by the time at which they are over."""

from __future__ import annotations

from mqstore.service.slave_errors import LeadLost, SlaveTimeout
from mqstore.writer.waits import Callback, FencedWaiter, Waiter, WaitError


class Immediate(Waiter):
    """Calls back at once."""

    def __init__(self, error: WaitError | None) -> None:
        self._error = error

    def add(self, end: int, callback: Callback) -> None:
        callback(self._error)


def result(error: WaitError | None, *, leads: bool) -> WaitError | None:
    found: list[WaitError | None] = []
    FencedWaiter(Immediate(error), lambda: leads).add(0, found.append)
    (only,) = found
    return only


def test_a_wait_succeeds_only_while_the_replica_leads() -> None:
    assert result(None, leads=True) is None
    assert isinstance(result(None, leads=False), LeadLost)


def test_another_error_is_reported_as_it_is() -> None:
    late = SlaveTimeout("late")
    assert result(late, leads=False) is late
