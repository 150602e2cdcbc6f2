"""Events of a service, for whoever watches: a bounded run of the latest, told as they come.

Sent as server-sent events (the HTML standard's `text/event-stream`): each has an id, so that a
client that was cut off goes on behind the last one it saw (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

EVENTS_KEPT: Final = 1_000
"""The latest; older ones are forgotten."""
HEARTBEAT_S: Final = 15.0
"""A comment is sent when nothing else was for so long: proxies keep the connection then."""
RETRY: Final = b"retry: 1000\n\n"
"""Begins a stream: a client that lost it asks again after so many milliseconds."""
GAP: Final = "gap"
"""Told first to a client whose last event is not known any more: some were missed."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int
    kind: str
    at_ms: int
    data: dict[str, Any]


class Events:
    """Published and followed on one event loop; ``publish_from_thread`` may be called anywhere."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._run = secrets.token_hex(4)  # numbers of another process mean nothing here
        self._next = 1
        self._changed = asyncio.Event()
        self._is_over = False

    def publish(self, kind: str, **data: Any) -> None:
        self._kept.append(Event(self._next, kind, time.time_ns() // 1_000_000, data))
        self._next += 1
        self._wake()

    def publish_from_thread(self, kind: str, **data: Any) -> None:
        self._loop.call_soon_threadsafe(lambda: self.publish(kind, **data))

    def end(self) -> None:
        """Let all who follow come to their end: the service is ending."""
        self._is_over = True
        self._wake()

    async def follow(self, last_id: str | None, seconds: float | None) -> AsyncIterator[bytes]:
        """Parts of a text/event-stream: what is kept behind ``last_id``, then what comes; for so
        many seconds, or until the service ends."""
        ends_at = None if seconds is None else self._loop.time() + seconds
        seen, is_gap = self._position(last_id)
        yield RETRY
        if is_gap:
            yield self._encoded(Event(seen, GAP, time.time_ns() // 1_000_000, {}))
        while True:
            changed = self._changed
            for event in [each for each in self._kept if each.number > seen]:
                seen = event.number
                yield self._encoded(event)
            left = HEARTBEAT_S if ends_at is None else min(HEARTBEAT_S, ends_at - self._loop.time())
            if self._is_over or left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                yield b": nothing new\n\n"

    def _position(self, last_id: str | None) -> tuple[int, bool]:
        """The number behind which to begin, and whether events in between were missed."""
        first = self._kept[0].number if self._kept else self._next
        if not last_id:
            return 0, False
        run, _, number = last_id.partition("-")
        if run != self._run or not (number.isascii() and number.isdigit()):
            return first - 1, True
        seen = min(int(number[:18]), self._next - 1)
        return max(seen, first - 1), seen < first - 1

    def _encoded(self, event: Event) -> bytes:
        data = msgspec.json.encode({"kind": event.kind, "atMs": event.at_ms, **event.data})
        head = f"id: {self._run}-{event.number}\nevent: {event.kind}\ndata: "
        return head.encode() + data + b"\n\n"

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
