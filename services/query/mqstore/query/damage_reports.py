"""Reports of damage that look-ups meet, sent to store-writer, whose scrub checks and repairs it.

No look-up waits for a report: it adds an offset to a bounded set, and a task sends the set.
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
"""Maximum number of unsent offsets; further ones are dropped. One request carries all."""
RETRY_S: Final = 5.0
"""Seconds between two attempts when store-writer does not accept a report."""

log = logs.get(__name__)


class DamageReports:
    """Sends damage reports. Used on the event loop; ``note`` and ``forget`` are thread-safe."""

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
        """Number of unsent offsets, at most WAITING_MAX."""
        return len(self._waiting)

    def note(self, offset: int) -> None:
        """Add a physical offset to the next report. Thread-safe; never waits for a reply."""
        with self._lock:
            if offset in self._waiting or len(self._waiting) >= WAITING_MAX:
                return
            self._waiting.add(offset)
        self._loop.call_soon_threadsafe(self._noted.set)

    def forget(self) -> None:
        """Drop the unsent offsets, because their store was replaced. Thread-safe."""
        with self._lock:
            self._waiting.clear()

    async def run(self) -> None:
        """Send noted offsets until the task is cancelled."""
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
        """Send offsets. Return None if store-writer accepted them, else the reason."""
        token = self._token()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        reply = await self._writer.request("POST", PATH, headers, {"offsets": offsets})
        if reply is None:
            return "no store-writer of this store replies"
        return None if reply.is_success else f"status {reply.status_code}: {reply.text[:200]}"

    def _log_change(self, refusal: str | None) -> None:
        """Log the first failure of a row of failed attempts."""
        if refusal is not None and self._refusal is None:
            log.warning("damage cannot be reported; retrying", why=refusal)
        self._refusal = refusal
