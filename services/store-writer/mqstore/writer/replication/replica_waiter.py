"""Requests that wait for a slave, as RocketMQ's handleHA does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from mqstore.service.slave_errors import SlaveNotAvailable, SlaveTimeout
from mqstore.storage.errors import FlushTimeout
from mqstore.storage.replication import Connections
from mqstore.writer.waits import Callback, Loop, Timer, Waiter, WaitError


class _Wait(NamedTuple):
    """One wait, up to the end offset. Waits are ordered by their ends."""

    end: int
    number: int
    deadline: float
    callback: Callback


class ReplicaWaiter(Waiter):
    """Calls back when enough slaves have acknowledged the log up to an offset.

    Used on one event loop only. A wait costs no task and no timer of its own.
    """

    def __init__(
        self,
        connections: Connections | None,
        timeout_s: float,
        fall_behind_max: int,
        acknowledged: Callable[[], int | None],
        loop: Loop | None = None,
    ) -> None:
        """``connections`` is None where no slave may connect. ``acknowledged`` returns up to where
        as many slaves as are waited for have the log, None where there are fewer. A wait that needs
        ``fall_behind_max`` bytes more is not begun. ``loop`` is by default the running one."""
        self._connections = connections
        self._acknowledged = acknowledged
        self._timeout_s = timeout_s
        self._fall_behind_max = fall_behind_max
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._waiting: list[_Wait] = []
        """A heap."""
        self._number = 0
        self._expiry: Timer | None = None
        self._is_requested = False
        if connections is not None:
            connections.listeners.append(self._finish)

    def add(self, end: int, callback: Callback) -> None:
        """See ``Waiter``. The error is SlaveNotAvailable, soon, or SlaveTimeout."""
        acknowledged = self._acknowledged()
        if acknowledged is None or end - acknowledged >= self._fall_behind_max:
            self._loop.call_soon(self._call, callback, self._not_available(end, acknowledged))
            return
        self._number += 1
        deadline = self._loop.time() + self._timeout_s
        heappush(self._waiting, _Wait(end, self._number, deadline, callback))
        if not self._is_requested:
            self._is_requested = True
            self._loop.call_soon(self._request)  # behind the other requests of this turn
        if self._expiry is None:
            self._expiry = self._loop.call_later(self._timeout_s, self._expire)

    def _request(self) -> None:
        """Have the slaves sent what is waited for; finish what they had already."""
        self._is_requested = False
        if self._connections is not None:
            self._connections.send_now()
        self._finish()

    def _finish(self) -> None:
        """Call back the waits that enough slaves have acknowledged."""
        acknowledged = self._acknowledged()
        if acknowledged is None:
            return
        while self._waiting and self._waiting[0].end <= acknowledged:
            self._call(heappop(self._waiting).callback, None)

    def _expire(self) -> None:
        """Fail the waits whose deadline has passed, and set the timer for the next one."""
        now = self._loop.time()
        late = sorted(
            (each for each in self._waiting if each.deadline <= now), key=lambda each: each.number
        )
        self._waiting = [each for each in self._waiting if each.deadline > now]
        heapify(self._waiting)
        self._expiry = None
        if self._waiting:
            first = min(each.deadline for each in self._waiting)
            self._expiry = self._loop.call_at(first, self._expire)
        self._fail(late)

    def _fail(self, late: Iterable[_Wait]) -> None:
        text = f"too few slaves have it after {self._timeout_s:g} s; the messages are stored"
        for each in late:
            self._call(each.callback, SlaveTimeout(text))

    def _not_available(self, end: int, acknowledged: int | None) -> FlushTimeout:
        if self._connections is None:
            return SlaveNotAvailable(
                "the messages are stored, and no slave may connect: set replicaSecretFile or "
                "haAllowedSlaves"
            )
        if acknowledged is None:
            return SlaveNotAvailable(
                "the messages are stored, and too few slaves that count are connected or in sync"
            )
        return SlaveNotAvailable(
            f"the messages are stored, and a slave is {end - acknowledged} bytes behind; one "
            f"counts below haSlaveFallbehindMax ({self._fall_behind_max})"
        )

    def _call(self, callback: Callback, error: WaitError | None) -> None:
        try:
            callback(error)
        except Exception as defect:
            self._loop.call_exception_handler(
                {"message": "a callback of a wait for a slave failed", "exception": defect}
            )
