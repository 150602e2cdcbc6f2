"""One receive, from its first look until it has messages or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from mqstore.storage.shared_groups import Received
from mqstore.writer.consumers.lines import Lines

EMPTY_LOOKS_MAX: Final = 1_000
"""Looks in a row that found no message, of 10,000 filtered entries each, before a receive replies
without one: a filter that matches nothing keeps no thread for long."""
SHARED_LOOK_S: Final = 1.0
"""Seconds for which the last look of a line is also that of a receive that joins it. It then looks
itself: for queues that were added meanwhile."""


class Receiving:
    """A ``Waiter``, without a task where messages are in memory. Used on the event loop only."""

    def __init__(
        self,
        lines: Lines,
        group: str,
        topics: frozenset[str],
        *,
        look_in_memory: Callable[[], Received | None],
        look_in_thread: Callable[[], Awaitable[Received]],
        wait_s: float,
        client: str,
        check: Callable[[], None],
    ) -> None:
        """``check`` raises where the client may receive nothing. ``look_in_memory`` returns None
        where the disk must be read. ``look_in_thread`` may be cancelled. Both lease what they
        return."""
        self._lines = lines
        self._group = group
        self._topics = topics
        self._look_in_memory = look_in_memory
        self._look_in_thread = look_in_thread
        self._check = check
        self.client = client
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + wait_s
        self._looks = 0
        self._looking: asyncio.Task[None] | None = None
        """A look in a thread."""
        self._timer: asyncio.TimerHandle | None = None
        """Set while it is in a line."""
        self._found = Received()
        self._error: BaseException | None = None
        self._callback: Callable[[], object] | None = None
        self.is_done = False

    def start(self) -> None:
        """Receive what is there, or wait with others of the line, which found nothing; the receive
        may be done at return."""
        line = self._lines.find(self._group, self._topics)
        now = self._loop.time()
        if self._until > now and line is not None and line.is_watched_since(now - SHARED_LOOK_S):
            self._found.is_full = line.is_full
            self._join()
        else:
            self.look()

    def then(self, callback: Callable[[], object]) -> None:
        """Call back once when the receive is done, which it is not yet."""
        self._callback = callback

    def result(self) -> Received:
        """Return what was received. Raises what a look raised, and CancelledError."""
        if self._error is not None:
            raise self._error
        return self._found

    async def finished(self) -> Received:
        """Wait until the receive is done, and return as ``result``; when cancelled, end it."""
        if not self.is_done:
            done = self._loop.create_future()
            self.then(partial(done.set_result, None))
            try:
                await done
            except asyncio.CancelledError:
                self._callback = None
                self.cancel()
                raise
        return self.result()

    def cancel(self) -> None:
        """End the receive, which then leases nothing. It calls back later."""
        if not self.is_done:
            if self._looking is not None:
                self._looking.cancel()
            self._error = asyncio.CancelledError()
            callback, self._callback = self._callback, None
            self._finish(None)
            if callback is not None:
                self._loop.call_soon(callback)

    def look(self) -> None:
        """See ``Waiter``."""
        if self._looking is not None or self.is_done:
            return
        self._looks += 1
        try:
            self._check()
            found = self._look_in_memory()
        except Exception as error:
            self._fail(error)
            return
        if found is None:
            self._looking = self._loop.create_task(self._look_later())
        else:
            self._take(found, is_current=True)

    async def _look_later(self) -> None:
        before = self._lines.changes
        try:
            found = await self._look_in_thread()
        except Exception as error:
            self._looking = None
            self._fail(error)
            return
        self._looking = None
        self._take(found, is_current=not self._lines.has_changed(before, found))

    def _take(self, found: Received, *, is_current: bool) -> None:
        """Reply with messages; else wait, or look again where something changed since the look."""
        found.unreadable[:0] = self._found.unreadable
        found.expired += self._found.expired
        found.dead += self._found.dead
        self._found = found
        is_over = self._until <= self._loop.time() or self._lines.arrivals.interrupted
        if found.batches or is_over or self._looks >= EMPTY_LOOKS_MAX:
            self._finish(found if is_current else None)
        elif not is_current:
            self.look()
        else:
            self._wait(found)

    def _wait(self, found: Received) -> None:
        if self._timer is None and not self._join():
            return
        line = self._lines.find(self._group, self._topics)
        assert line is not None, "this receive is in it"
        line.watch(found)

    def _join(self) -> bool:
        """Go to the end of the line; return whether there was room."""
        try:
            self._lines.join(self._group, self._topics, self)
        except Exception as error:
            self._fail(error)
            return False
        self._timer = self._loop.call_at(self._until, self._time_out)
        return True

    def _time_out(self) -> None:
        if self._looking is None and not self.is_done:
            self._finish(None)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._finish(None)

    def _finish(self, found: Received | None) -> None:
        """End the receive; ``found`` is what those behind it in the line may wait behind."""
        self.is_done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._lines.leave(self._group, self._topics, self, found)
        if self._callback is not None:
            self._callback()
