"""Waiting for the disk on an event loop: many requests, one group commit at a time."""

from __future__ import annotations

import asyncio

from mqstore.storage.errors import FlushTimeout, StoreFailed
from mqstore.storage.log.flush import FlushRequest, FlushService


class DurabilityWaiter:
    """Lets coroutines wait until the log is on disk up to an offset.

    Used on one event loop only. While one sync runs, those who come wait together for the next.
    """

    def __init__(self, flush: FlushService, timeout_s: float) -> None:
        self._flush = flush
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._asked = False

    async def wait(self, end: int) -> None:
        """Return when every byte below ``end`` is on disk. Raises FlushTimeout, StoreFailed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting[waiter] = end
        if not self._asked:
            self._ask()
        try:
            async with asyncio.timeout(self._timeout_s):
                await waiter
        except TimeoutError:
            raise FlushTimeout(
                f"not known to be on disk after {self._timeout_s:g} s; the messages are stored"
            ) from None
        finally:
            self._waiting.pop(waiter, None)

    def _ask(self) -> None:
        self._asked = True
        request = self._flush.request(max(self._waiting.values()))
        request.add_done_callback(self._wake)

    def _wake(self, request: FlushRequest) -> None:
        """Called from the thread that synced."""
        self._loop.call_soon_threadsafe(self._finish, request.offset, request.error)

    def _finish(self, reached: int, error: StoreFailed | None) -> None:
        self._asked = False
        for waiter, end in list(self._waiting.items()):
            if error is not None:
                _settle(waiter, error)
            elif end <= reached:
                _settle(waiter, None)
            else:
                continue
            del self._waiting[waiter]
        if self._waiting:
            self._ask()


def _settle(waiter: asyncio.Future[None], error: StoreFailed | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
