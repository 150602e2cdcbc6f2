"""A limit of bytes a second over several transfers of one event loop."""

from __future__ import annotations

import asyncio


class Rate:
    """A token bucket that may go into debt: who takes last waits for what was taken before."""

    def __init__(self, per_second: int) -> None:
        """``per_second``: bytes; 0 means no limit."""
        self.per_second = per_second
        self._free_at = 0.0

    def reserve(self, size: int, now_s: float) -> float:
        """Take ``size`` bytes, which may be sent after the returned number of seconds."""
        if self.per_second == 0:
            return 0.0
        wait_s = max(0.0, self._free_at - now_s)
        self._free_at = now_s + wait_s + size / self.per_second
        return wait_s

    async def take(self, size: int) -> None:
        """Wait until the rate allows ``size`` more bytes."""
        wait_s = self.reserve(size, asyncio.get_running_loop().time())
        if wait_s > 0:
            await asyncio.sleep(wait_s)
