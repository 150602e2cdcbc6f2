"""Damage that look-ups meet, reported to store-writer, whose scrub checks and repairs it.

Nothing waits for a report: look-ups leave offsets in a bounded set, and a task sends them.
"""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import Final

from mqstore.query.local_writer import LocalWriter
from mqstore.service import logs
from mqstore.service.auth import OwnToken

PATH: Final = "/v1/internal/damage"
WAITING_MAX: Final = 1_024
"""Offsets that wait to be sent; further ones are dropped. All go in one request."""
RETRY_S: Final = 5.0
"""Between two attempts, where store-writer did not accept a report."""

log = logs.get(__name__)


class DamageReports:
    """Used on the event loop, but for ``note`` and ``forget``."""

    def __init__(self, writer: LocalWriter, token: OwnToken, retry_s: float = RETRY_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._token = token
        self._retry_s = retry_s
        self._waiting: set[int] = set()
        self._lock = Lock()
        self._noted = asyncio.Event()
        self._refusal: str | None = None

    @property
    def waiting(self) -> int:
        """How many offsets wait; 1,024 at most."""
        return len(self._waiting)

    def note(self, offset: int) -> None:
        """A look-up met damage at a physical offset. Any thread; never waits for store-writer."""
        with self._lock:
            if offset in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting.add(offset)
        self._loop.call_soon_threadsafe(self._noted.set)

    def forget(self) -> None:
        """Drop what waits: another store took the place of the one that it is of. Any thread."""
        with self._lock:
            self._waiting.clear()

    async def run(self) -> None:
        """Send what is noted; ends by being cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            with self._lock:
                offsets = sorted(self._waiting)
            if not offsets:
                continue
            refusal = await self._send(offsets)
            self._log_change(refusal)
            if refusal is None:
                with self._lock:
                    self._waiting.difference_update(offsets)
            else:
                await asyncio.sleep(self._retry_s)
                self._noted.set()

    async def _send(self, offsets: list[int]) -> str | None:
        """None where store-writer accepted them, else why not."""
        token = self._token()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        reply = await self._writer.request("POST", PATH, headers, {"offsets": offsets})
        if reply is None:
            return "no store-writer of this store replies"
        return None if reply.is_success else f"status {reply.status_code}: {reply.text[:200]}"

    def _log_change(self, refusal: str | None) -> None:
        """Attempts that fail alike are logged once."""
        if refusal is not None and self._refusal is None:
            log.warning("damage cannot be reported; it is tried again", why=refusal)
        self._refusal = refusal
