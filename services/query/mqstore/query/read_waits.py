"""Reads that wait until the log is readable up to an offset (``mqstore.service.read_conditions``).

A follower may lack messages that its leader has acknowledged, and with readUpToConfirmedOffset a
leader shows its messages later than it stores them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from mqstore.service.limits import Budget, client_of
from mqstore.service.problems import OFFSET_NOT_REACHED, Problem
from mqstore.service.read_conditions import least_offset

WAIT_MAX_S: Final = 5.0
"""Longest time that a read waits for an offset."""
LOOK_INTERVAL_S: Final = 0.005
"""Seconds between two looks at the readable end."""


class ReadWaits:
    """Waits for the readable end of one store. Used on the event loop."""

    def __init__(self, readable_end: Callable[[], int], shard: int, polls: Budget) -> None:
        """``readable_end`` raises Problem while no store is open."""
        self._readable_end = readable_end
        self._shard = shard
        self._polls = polls

    async def wait(self, scope: Scope) -> None:
        """Wait for the offset that a request names for this shard.

        Raises Problem (400, 429, 503).
        """
        offset = least_offset(scope["headers"], self._shard)
        if offset is None or self._readable_end() >= offset:
            return
        with self._polls.holding(client_of(scope)):
            await self._wait(offset)

    async def _wait(self, offset: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_MAX_S
        while (end := self._readable_end()) < offset:
            if loop.time() >= until:
                raise Problem(
                    OFFSET_NOT_REACHED,
                    f"the log is readable up to {end}, and offset {offset} was requested",
                    extra={"readableOffset": end, "behindBytes": offset - end},
                )
            await asyncio.sleep(LOOK_INTERVAL_S)
