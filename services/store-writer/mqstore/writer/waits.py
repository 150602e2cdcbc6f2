"""Conditions for which replies to stored messages wait: the disk, a replica."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from mqstore.service.slave_errors import LeadLost
from mqstore.storage.errors import FlushTimeout, StoreFailed

WaitError = FlushTimeout | StoreFailed
Callback = Callable[[WaitError | None], object]

DISK: Final = 1
REPLICA: Final = 2
"""Conditions of a reply, which add up; 0 is none. The kernel has the same numbers."""


class Timer(Protocol):
    """``asyncio.TimerHandle``."""

    def cancel(self) -> None:
        """Do not call."""


class Loop(Protocol):
    """The event loop, as far as waits use it."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_soon(self, callback: Callable[..., object], *given: Any) -> object:
        """Call behind what is being done."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *given: Any) -> object:
        """Call soon, from any thread."""

    def call_later(self, delay: float, callback: Callable[..., object], *given: Any) -> Timer:
        """Call after some seconds."""

    def call_at(self, when: float, callback: Callable[..., object], *given: Any) -> Timer:
        """Call at a time."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report the exception of a callback."""


class Waiter(ABC):
    """Calls back when the log is in a place up to an offset. Used on one event loop only."""

    @abstractmethod
    def add(self, end: int, callback: Callback) -> None:
        """Call back once, later, with None when every byte below ``end`` is in place, else with
        the error."""

    async def wait(self, end: int) -> None:
        """Wait until every byte below ``end`` is in place. Raises FlushTimeout, StoreFailed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: WaitError | None) -> None:
            if future.done():  # cancelled
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.add(end, settle)
        await future


class _Join:
    """Calls back after two callbacks, with the graver error of both."""

    __slots__ = ("_callback", "_error", "_missing")

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._error: WaitError | None = None
        self._missing = 2

    def note(self, error: WaitError | None) -> None:
        """Note one result. As in RocketMQ a slave's error is reported before the disk's."""
        if error is not None and not isinstance(self._error, StoreFailed):
            is_graver = self._error is None or type(error) is not FlushTimeout
            self._error = error if is_graver else self._error
        self._missing -= 1
        if not self._missing:
            self._callback(self._error)


class WaiterForBoth(Waiter):
    """Waits for two places."""

    def __init__(self, one: Waiter, other: Waiter) -> None:
        self._both = one, other

    def add(self, end: int, callback: Callback) -> None:
        """See ``Waiter``."""
        join = _Join(callback)
        for each in self._both:
            each.add(end, join.note)


class FencedWaiter(Waiter):
    """Waits as another waiter, and then reports what is in place only while this process leads."""

    def __init__(self, waiter: Waiter, leads: Callable[[], bool]) -> None:
        self._waiter = waiter
        self._leads = leads

    def add(self, end: int, callback: Callback) -> None:
        """See ``Waiter``. The error is LeadLost where another replica may lead by now."""
        self._waiter.add(end, partial(self._check, callback))

    def _check(self, callback: Callback, error: WaitError | None) -> None:
        callback(LeadLost() if error is None and not self._leads() else error)


def reply_waiters(
    disk: Waiter, replica: Waiter, leads: Callable[[], bool] | None
) -> dict[int, Waiter]:
    """Return the waiters of replies by their conditions. ``leads`` is None where no other process
    may lead."""
    waiters: dict[int, Waiter] = {
        DISK: disk,
        REPLICA: replica,
        DISK | REPLICA: WaiterForBoth(disk, replica),
    }
    if leads is None:
        return waiters
    return {waits: FencedWaiter(each, leads) for waits, each in waiters.items()}
