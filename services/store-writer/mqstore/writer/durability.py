"""Coroutines that wait for the disk, or the page cache; one sync serves many requests."""

from __future__ import annotations

import asyncio

from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.storage.puts import OffsetRequest, RequestService


class DurabilityWaiter:
    """Lets coroutines wait until the log is on disk (or in ``place``) up to an offset.

    Used on one event loop only. Requests of one loop turn, and those that arrive during a sync,
    wait together for the next one.
    """

    def __init__(
        self, service: RequestService, timeout_s: float, *, place: str = "on disk"
    ) -> None:
        self._service = service
        self._place = place
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], tuple[int, float]] = {}
        """Each waiter with its end offset and its deadline, in the order of arrival."""
        self._deadline: asyncio.TimerHandle | None = None
        """One timer for all waiters, because a timer for each is the largest cost of a wait."""
        self._is_requested = False

    async def wait(self, end: int) -> None:
        """Wait until every byte below ``end`` is in place. Raises FlushTimeout, StoreFailed."""
        waiter = self.start(end)
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def start(self, end: int) -> asyncio.Future[None]:
        """Return a future that resolves as ``wait`` returns or raises; it is never cancelled."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting[waiter] = end, self._loop.time() + self._timeout_s
        if not self._is_requested:
            self._is_requested = True
            self._loop.call_soon(self._request)  # behind the other requests of this turn
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._timeout_s, self._expire)
        return waiter

    def _expire(self) -> None:
        """Fail the waiters whose deadline has passed, and set the timer for the next one."""
        now = self._loop.time()
        self._deadline = None
        for waiter, (_, deadline) in list(self._waiting.items()):
            if deadline > now:
                self._deadline = self._loop.call_at(deadline, self._expire)
                return
            _settle(
                waiter,
                FlushTimeout(
                    f"not known to be {self._place} after {self._timeout_s:g} s; "
                    "the messages are stored"
                ),
            )
            del self._waiting[waiter]

    def _request(self) -> None:
        if not self._waiting:
            self._is_requested = False
            return
        request = self._service.request(max(end for end, _ in self._waiting.values()))
        request.add_done_callback(self._wake)

    def _wake(self, request: OffsetRequest) -> None:
        """Finish a sync. Called from the thread of the flush service."""
        self._loop.call_soon_threadsafe(self._finish, request.error)

    def _finish(self, error: StoreFailed | None) -> None:
        reached = self._service.reached_offset  # at least what was requested
        for waiter, (end, _) in list(self._waiting.items()):
            if error is not None:
                _settle(waiter, error)
            elif end <= reached:
                _settle(waiter, None)
            else:
                continue
            del self._waiting[waiter]
        self._request()


def _settle(waiter: asyncio.Future[None], error: FlushTimeout | StoreFailed | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
