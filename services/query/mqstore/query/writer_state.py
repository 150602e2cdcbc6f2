"""The state of the writer, which ``GET /v1/store`` and a header of each reply report."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqstore.service.http import problem_of
from mqstore.service.problems import Problem
from mqstore.storage import StoreReader
from mqstore.storage.errors import StorageError, StoreNotOpen
from mqstore.storage.reads import Health

HEADER: Final = b"x-mqstore-writer"
CACHE_S: Final = 0.1
"""Seconds for which one check of the store's lock is reused."""
STALL_S: Final = 5.0
"""Seconds without a beat of the writer, which makes one each second, after which it stands still:
less than the default lease of a leader."""


class WriterState(StrEnum):
    """Whether a writer holds the store."""

    ALIVE = "alive"
    RECOVERING = "recovering"
    """A writer is opening the store."""
    UNRESPONSIVE = "unresponsive"
    """A writer holds the store and has stood still for STALL_S: it is stopped or hangs."""
    DOWN = "down"
    """No writer runs: no message arrives, and stored messages are still served."""


class WriterWatch:
    """Cached state of the writer. Used from the event loop and from threads."""

    def __init__(self, reader: Callable[[], StoreReader | None]) -> None:
        """``reader`` returns the store's reader, None while no store is open."""
        self._reader = reader
        self._known = WriterState.DOWN
        self._good_until = 0.0
        self._beats = 0
        self._moved_at = self._observed_at = 0.0
        self._is_still = False
        self.is_succeeded = False
        """Whether the writer stands still and another replica leads the shard instead: messages
        that it takes do not arrive here."""

    def now(self) -> WriterState:
        """Return the state, which is at most CACHE_S old."""
        if time.monotonic() >= self._good_until:
            self.refresh()
        return self._known

    def observe(self, now: float) -> None:
        """Look whether the writer moves, at a monotonic time in seconds. Call it about each
        second, from one thread."""
        reader = self._reader()
        beats = 0 if reader is None else reader.state.beats
        has_slept = now - self._observed_at > STALL_S  # this process stood still itself
        self._observed_at = now
        if beats != self._beats or has_slept:
            self._beats, self._moved_at = beats, now
        is_still = beats > 0 and now - self._moved_at >= STALL_S
        if is_still != self._is_still:
            self._is_still, self._good_until = is_still, 0.0
        self.is_succeeded = (
            self._is_still
            and reader is not None
            and reader.state.is_elected
            and self._read_state() is WriterState.UNRESPONSIVE
        )

    def header(self) -> tuple[bytes, bytes]:
        """Return the name and the value of the reply header."""
        return HEADER, self.now().value.encode()

    def field(self) -> bytes:
        """Return the bytes of the header field."""
        return b"%b: %b\r\n" % self.header()

    def problem(self, error: Problem | StorageError) -> Problem:
        """Return an error as a problem whose headers have the state of the writer."""
        problem = error if isinstance(error, Problem) else problem_of(error)
        name, value = self.header()
        problem.headers[name.decode()] = value.decode()
        return problem

    def refresh(self) -> WriterState:
        """Check the writer now and return its state."""
        self._known = self._read_state()
        self._good_until = time.monotonic() + CACHE_S
        return self._known

    def _read_state(self) -> WriterState:
        reader = self._reader()
        if reader is None or not reader.writer_is_alive:
            return WriterState.DOWN
        try:
            is_recovering = reader.snapshot().health is Health.RECOVERING
        except StoreNotOpen:
            is_recovering = True
        if is_recovering:
            return WriterState.RECOVERING
        return WriterState.UNRESPONSIVE if self._is_still else WriterState.ALIVE


class WriterHeader:
    """ASGI middleware that adds the header to each reply of FastAPI's routes.

    A reply that was relayed from another shard keeps the header of that shard.
    """

    def __init__(self, app: ASGIApp, watch: WriterWatch) -> None:
        self._app = app
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", [])
                if all(name != HEADER for name, _ in headers):
                    message["headers"] = [*headers, self._watch.header()]
            await send(message)

        await self._app(scope, receive, send_with_header)
