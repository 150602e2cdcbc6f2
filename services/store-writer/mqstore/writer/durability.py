"""Requests that wait for the disk, or the page cache; one sync serves many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.storage.puts import OffsetRequest, RequestService
from mqstore.writer.waits import Callback, Loop, Timer, Waiter, WaitError


class _Wait(msgspec.Struct, gc=False):
    """One wait, up to the end offset."""

    end: int
    deadline: float
    callback: Callback


class DurabilityWaiter(Waiter):
    """Calls back when the log is on disk (or in ``place``) up to an offset.

    Used on one event loop only. Requests of one loop turn, and those that arrive during a sync,
    wait together for the next one.
    """

    def __init__(
        self,
        service: RequestService,
        timeout_s: float,
        *,
        place: str = "on disk",
        loop: Loop | None = None,
    ) -> None:
        """``loop`` is by default the running one."""
        self._service = service
        self._place = place
        self._timeout_s = timeout_s
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._waiting: list[_Wait] = []
        """In the order of arrival, which is that of the deadlines."""
        self._deadline: Timer | None = None
        """One timer for all waits, because a timer for each is the largest cost of a wait."""
        self._is_requested = False

    def add(self, end: int, callback: Callback) -> None:
        """See ``Waiter``.

        Callbacks run in the order of their calls. An exception of one is reported to the loop's
        exception handler.
        """
        self._waiting.append(_Wait(end, self._loop.time() + self._timeout_s, callback))
        if not self._is_requested:
            self._is_requested = True
            self._loop.call_soon(self._request)  # behind the other requests of this turn
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._timeout_s, self._expire)

    def _expire(self) -> None:
        """Fail the waits whose deadline has passed, and set the timer for the next one."""
        now = self._loop.time()
        late = [each for each in self._waiting if each.deadline <= now]
        self._waiting = self._waiting[len(late) :]
        self._deadline = None
        if self._waiting:
            self._deadline = self._loop.call_at(self._waiting[0].deadline, self._expire)
        text = f"not known to be {self._place} after {self._timeout_s:g} s; the messages are stored"
        for each in late:
            self._call((each,), FlushTimeout(text))

    def _request(self) -> None:
        if not self._waiting:
            self._is_requested = False
            return
        request = self._service.request(max(each.end for each in self._waiting))
        request.add_done_callback(self._wake)

    def _wake(self, request: OffsetRequest) -> None:
        """Finish a sync. Called from the thread of the flush service."""
        self._loop.call_soon_threadsafe(self._finish, request.error)

    def _finish(self, error: StoreFailed | None) -> None:
        """Call back the waits that are over, while the disk serves the next request."""
        waiting, reached = self._waiting, self._service.reached_offset
        if error is None:  # reached is at least what was requested
            self._waiting = [each for each in waiting if each.end > reached]
            waiting = [each for each in waiting if each.end <= reached]
        else:
            self._waiting = []
        self._request()
        self._call(waiting, error)

    def _call(self, waits: Iterable[_Wait], error: WaitError | None) -> None:
        for each in waits:
            try:
                each.callback(error)
            except Exception as defect:
                self._loop.call_exception_handler(
                    {"message": "a callback of a durable wait failed", "exception": defect}
                )
