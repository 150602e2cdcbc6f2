"""The reply of a request that is stored in one call, once the disk has it.

Called from ``produce_route`` and ``transactions.plain``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mqstore.service.http import DeferredReply
from mqstore.service.problems import Problem
from mqstore.storage.errors import FlushTimeout
from mqstore.storage.exchanges import ValueCounts
from mqstore.writer.waits import Waiter, WaitError


class SyncedReply(DeferredReply):
    """A body in JSON that is sent once the log is in a place up to an offset."""

    __slots__ = ("_body", "_callback", "_end", "_error", "_late", "_seconds", "_started", "_waiter")

    def __init__(
        self,
        waiter: Waiter,
        end: int,
        body: bytes,
        seconds: ValueCounts,
        late: Callable[[FlushTimeout], Problem] | None = None,
    ) -> None:
        """``seconds`` counts the time of the wait. ``late`` returns the problem of a timeout."""
        self._waiter = waiter
        self._end = end
        self._body = body
        self._seconds = seconds
        self._late = late
        self._error: WaitError | None = None

    def then(self, callback: Callable[[], object]) -> None:
        """See ``DeferredReply``."""
        self._callback = callback
        self._started = time.perf_counter()
        self._waiter.add(self._end, self._finish)

    def reply(self) -> bytes:
        """See ``DeferredReply``. Raises StoreFailed, FlushTimeout, Problem."""
        error = self._error
        if error is None:
            return self._body
        if self._late is not None and isinstance(error, FlushTimeout):
            raise self._late(error) from error
        raise error

    def _finish(self, error: WaitError | None) -> None:
        self._seconds.observe(time.perf_counter() - self._started)
        self._error = error
        self._callback()
