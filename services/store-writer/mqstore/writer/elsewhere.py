"""Where a client may go whose message is not taken here: a shard that takes messages just now."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from mqstore.service import problems
from mqstore.service.auth import OwnToken
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards

GOOD_FOR_S: Final = 1.0
"""How long what the others said of themselves is told on."""
REFUSING: Final = frozenset(
    {
        problems.STORE_NOT_READY,
        problems.STORE_READ_ONLY,
        problems.DISK_REFUSES,
        problems.WRITES_PAUSED,
        problems.STORE_NOT_WRITABLE,
        *problems.FILE_KINDS,
    }
)


class _Writes(msgspec.Struct):
    taken: bool = False


class Elsewhere:
    """Used on the event loop only. The others are asked once a second at most."""

    def __init__(self, shards: Shards, token: OwnToken) -> None:
        self._shards = shards
        self._token = token
        self._asking: asyncio.Task[list[int]] | None = None
        self._good_until = 0.0

    async def point(self, problem: Problem) -> None:
        """Have a refusal name, as `writable`, a shard that would take the message."""
        if problem.kind not in REFUSING or self._shards.members.alone:
            return
        if self._asking is None or time.monotonic() >= self._good_until:
            self._asking = asyncio.ensure_future(self._ask())
            self._good_until = time.monotonic() + GOOD_FOR_S
        # Shielded: others wait for it, too.
        for shard in await asyncio.shield(self._asking):
            if shard in self._shards.members.entries:
                problem.extra["writable"] = self._shards.place_of(shard)
                return

    async def _ask(self) -> list[int]:
        """Those that take messages, by number, the next one behind this shard first."""
        told = await self._shards.fetch_from_others("/v1/store/writes", self._token())
        own = self._shards.own
        taking = [shard for shard, body in told.answers.items() if _are_taken(body)]
        return sorted(taking, key=lambda shard: (shard < own, shard))


def _are_taken(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Writes).taken
    except msgspec.MsgspecError:
        return False
