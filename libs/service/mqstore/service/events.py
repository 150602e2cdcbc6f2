"""Events of a service: the latest are kept, new ones are sent to each client that follows them.

They are server-sent events (the HTML standard's `text/event-stream`). Each has an id; a client that
was disconnected continues after the last event that it received (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

EVENTS_MAX: Final = 1_000
"""Maximum number of events that are kept, the latest ones."""
HEARTBEAT_S: Final = 15.0
"""Interval of comments on an idle stream, which keep proxies from closing the connection."""
RETRY: Final = b"retry: 1000\n\n"
"""First line of a stream: a disconnected client reconnects after so many milliseconds."""
GAP: Final = "gap"
"""Kind of the first event for a client whose last event is no longer kept: it missed some."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a service."""

    number: int
    kind: str
    at_ms: int
    data: dict[str, Any]


class Events:
    """The latest events. Used on one event loop only, except ``publish_from_thread``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._run = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._next = 1
        self._changed = asyncio.Event()
        self._is_closed = False

    def publish(self, kind: str, **data: Any) -> None:
        """Add an event and send it to all followers."""
        self._kept.append(Event(self._next, kind, time.time_ns() // 1_000_000, data))
        self._next += 1
        self._wake()

    def publish_from_thread(self, kind: str, **data: Any) -> None:
        """Publish an event from any thread."""
        self._loop.call_soon_threadsafe(lambda: self.publish(kind, **data))

    def end(self) -> None:
        """End all streams, because the service is shutting down."""
        self._is_closed = True
        self._wake()

    async def follow(
        self, last_id: str | None, seconds: float | None, is_allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield a text/event-stream: the kept events after ``last_id``, then new ones.

        The stream ends after ``seconds`` (None: no limit), when the service shuts down, or where
        ``is_allowed``, called before each event and comment, says no.
        """
        ends_at = None if seconds is None else self._loop.time() + seconds
        seen, is_gap = self._position(last_id)
        yield RETRY
        if is_gap:
            yield self._encode(Event(seen, GAP, time.time_ns() // 1_000_000, {}))
        while True:
            changed = self._changed
            for event in [each for each in self._kept if each.number > seen]:
                if not is_allowed():
                    return
                seen = event.number
                yield self._encode(event)
            left = HEARTBEAT_S if ends_at is None else min(HEARTBEAT_S, ends_at - self._loop.time())
            if self._is_closed or left <= 0 or not is_allowed():
                return
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                if is_allowed():
                    yield b": nothing new\n\n"

    def _position(self, last_id: str | None) -> tuple[int, bool]:
        """Return the number of the event to begin after, and whether events were missed."""
        first = self._kept[0].number if self._kept else self._next
        if not last_id:
            return 0, False
        run, _, number = last_id.partition("-")
        if run != self._run or not (number.isascii() and number.isdigit()):
            return first - 1, True
        seen = min(int(number[:18]), self._next - 1)
        return max(seen, first - 1), seen < first - 1

    def _encode(self, event: Event) -> bytes:
        data = msgspec.json.encode({"kind": event.kind, "atMs": event.at_ms, **event.data})
        head = f"id: {self._run}-{event.number}\nevent: {event.kind}\ndata: "
        return head.encode() + data + b"\n\n"

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
