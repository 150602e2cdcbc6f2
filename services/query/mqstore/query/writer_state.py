"""Whether a writer lives: told in ``GET /v1/store`` and in a header of each answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqstore.storage import StoreReader
from mqstore.storage.errors import StoreNotOpen
from mqstore.storage.reads import Health

HEADER: Final = b"x-mqstore-writer"
LOOK_EVERY_S: Final = 0.1
"""How long one look at the store's lock is good for."""


class WriterState(StrEnum):
    ALIVE = "alive"
    RECOVERING = "recovering"
    """A writer is opening the store."""
    DOWN = "down"
    """Nothing new arrives; what is there is answered."""


class WriterWatch:
    """One look at a time; for the event loop and for threads."""

    def __init__(self, reader: Callable[[], StoreReader | None]) -> None:
        """``reader`` gives the store once it is open."""
        self._reader = reader
        self._known = WriterState.DOWN
        self._good_until = 0.0

    def now(self) -> WriterState:
        """As it was LOOK_EVERY_S ago at most."""
        if time.monotonic() >= self._good_until:
            self.look()
        return self._known

    def header(self) -> tuple[bytes, bytes]:
        return HEADER, self.now().value.encode()

    def look(self) -> WriterState:
        """As it is."""
        self._known = self._look()
        self._good_until = time.monotonic() + LOOK_EVERY_S
        return self._known

    def _look(self) -> WriterState:
        reader = self._reader()
        if reader is None or not reader.writer_is_alive:
            return WriterState.DOWN
        try:
            is_recovering = reader.snapshot().health is Health.RECOVERING
        except StoreNotOpen:
            is_recovering = True
        return WriterState.RECOVERING if is_recovering else WriterState.ALIVE


class WriterHeader:
    """ASGI middleware: puts the header into each answer that FastAPI's part gives, unless it is
    another shard's, which has its own."""

    def __init__(self, app: ASGIApp, watch: WriterWatch) -> None:
        self._app = app
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", [])
                if all(name != HEADER for name, _ in headers):
                    message["headers"] = [*headers, self._watch.header()]
            await send(message)

        await self._app(scope, receive, sending)
