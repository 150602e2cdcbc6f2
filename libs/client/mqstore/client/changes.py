"""Waits of tasks of one event loop for something to become true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Lets tasks of one event loop wait until something is true of the object that they share."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Let each waiting task look again."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def until(
        self, is_true: Callable[[], bool], timeout_s: Callable[[], float | None] = lambda: None
    ) -> None:
        """Return when ``is_true``, or once ``timeout_s`` has passed."""
        while not is_true():
            change = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                done, _ = await asyncio.wait({change}, timeout=timeout_s())
            finally:
                self._waiting.discard(change)
            if not done:
                return
