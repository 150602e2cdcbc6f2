"""Lines of receives that wait: those of one group and the same topics wait as one.

All wait for what any of them could receive: a message behind what was read last, the end of a
lease, or room in a full queue. Then the first of the line looks. What it leaves is what the others
wait behind, so that none of them looks before it can get a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Protocol

from mqstore.service.arrivals import Watch, WriterArrivals
from mqstore.service.limits import Budget
from mqstore.storage.shared_groups import Received


class Waiter(Protocol):
    """A receive in a line."""

    client: str
    """Address of the client, whose share of the polls it takes."""

    def look(self) -> None:
        """Look for messages, now or in a thread; then watch the line, or leave it."""


class Changes(NamedTuple):
    """Numbers of requests so far after which receives may find messages."""

    ended: int = 0
    """Requests that ended leases, or let them end at another time."""
    settled: int = 0
    """Requests that made room in queues that may be full; those that ended leases too."""


class Line:
    """Receives of one group and the same topics, first come, first served. A ``Waker``."""

    def __init__(self, arrivals: WriterArrivals, loop: asyncio.AbstractEventLoop) -> None:
        self._arrivals = arrivals
        self._loop = loop
        self._waiters: dict[Waiter, None] = {}
        """In the order of their coming."""
        self._watches: Sequence[Watch] = ()
        self._timer: asyncio.TimerHandle | None = None
        self.is_watching = False
        """Whether all wait for a change; else the first one looks."""
        self.is_full = False
        """Whether a queue was full at the last look."""
        self._looked_at = -inf
        """Time of the last look, by the loop's clock."""

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def is_watched_since(self, since: float) -> bool:
        """Whether all wait for a change, behind a look that was not before a time."""
        return self.is_watching and self._looked_at >= since

    def watch(self, found: Received) -> None:
        """Let all wait for a change since a look that left nothing to receive."""
        self.unwatch()
        self.is_watching, self.is_full = True, found.is_full
        self._looked_at = self._loop.time()
        self._watches = tuple(found.ends)
        if found.next_deadline < inf:
            self._timer = self._loop.call_at(found.next_deadline, self.set_result)
        if self._arrivals.add(self, self._watches):
            self._loop.call_soon(self.set_result)

    def unwatch(self) -> None:
        """End the watch, if there is one."""
        if self.is_watching:
            self.is_watching = False
            self._arrivals.remove(self, self._watches)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def done(self) -> bool:
        """See ``Waker``."""
        return not self.is_watching

    def set_result(self, _: None = None, /) -> None:
        """Let the first one look, because something changed."""
        if self.is_watching:
            self.unwatch()
            self._look()

    def add(self, waiter: Waiter) -> None:
        """Add a receive at the end."""
        self._waiters[waiter] = None

    def remove(self, waiter: Waiter, found: Received | None) -> None:
        """Remove a receive. If it was the one that looks, the others wait behind ``found``; the
        next one looks where that is None, or messages were left."""
        was_looking = not self.is_watching and next(iter(self._waiters)) is waiter
        del self._waiters[waiter]
        if not self._waiters:
            self.unwatch()
        elif was_looking and found is not None and found.is_exhausted:
            self.watch(found)
        elif was_looking:
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._waiters and not self.is_watching:
            next(iter(self._waiters)).look()


class Lines:
    """All receives that wait. Used on the event loop only."""

    def __init__(self, arrivals: WriterArrivals, polls: Budget) -> None:
        self.arrivals = arrivals
        self.changes = Changes()
        self._polls = polls
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, dict[frozenset[str], Line]] = {}
        """By group and topics."""

    def find(self, group: str, topics: frozenset[str]) -> Line | None:
        """Return the line of receives of a group and topics, if any waits."""
        lines = self._lines.get(group)
        return None if lines is None else lines.get(topics)

    def join(self, group: str, topics: frozenset[str], waiter: Waiter) -> None:
        """Add a receive to its line. Raises Problem (429, 503) while too many wait."""
        self._polls.take(waiter.client)
        line = self._lines.setdefault(group, {}).get(topics)
        if line is None:
            line = self._lines[group][topics] = Line(self.arrivals, self._loop)
        line.add(waiter)

    def leave(
        self, group: str, topics: frozenset[str], waiter: Waiter, found: Received | None
    ) -> None:
        """Remove a receive from its line, as ``Line.remove``."""
        lines = self._lines[group]
        line = lines[topics]
        line.remove(waiter, found)
        self._polls.give_back(waiter.client)
        if not line:
            del lines[topics]
            if not lines:
                del self._lines[group]

    def wake(self, group: str, *, only_full: bool) -> None:
        """Have waiting receives of a group look: leases ended, or full queues have room.

        ``only_full``: only those for which a queue was full.
        """
        ended, settled = self.changes
        self.changes = Changes(ended + (not only_full), settled + 1)
        lines = self._lines.get(group)
        if lines is not None:
            self.arrivals.wake([each for each in lines.values() if each.is_full or not only_full])

    def has_changed(self, before: Changes, found: Received) -> bool:
        """Whether a request since ``before`` matters to a look that found this."""
        if found.is_full:
            return self.changes != before
        return self.changes.ended != before.ended
