"""Other shards that take messages, for clients whose message this shard refuses."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from mqstore.service import problems
from mqstore.service.auth import OwnToken
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards

CACHE_S: Final = 1.0
"""Seconds for which the replies of the other shards are reused."""
REFUSING: Final = frozenset(
    {
        problems.STORE_NOT_READY,
        problems.STORE_READ_ONLY,
        problems.DISK_REFUSES,
        problems.WRITES_PAUSED,
        problems.IN_SYNC_REPLICAS_NOT_ENOUGH,
        problems.STORE_NOT_WRITABLE,
        *problems.FILE_KINDS,
    }
)


class _Writes(msgspec.Struct):
    taken: bool = False


class WritableShards:
    """Knows which other shards take messages. Used on the event loop only.

    It sends a request to each other shard at most once per CACHE_S.
    """

    def __init__(self, shards: Shards, token: OwnToken) -> None:
        self._shards = shards
        self._token = token
        self._fetching: asyncio.Task[list[int]] | None = None
        self._fresh_until = 0.0

    async def add_to(self, problem: Problem) -> None:
        """Add to a refusal, as ``writable``, a shard that takes messages, if there is one."""
        if problem.kind not in REFUSING or self._shards.members.alone:
            return
        if self._fetching is None or time.monotonic() >= self._fresh_until:
            self._fetching = asyncio.ensure_future(self._fetch())
            self._fresh_until = time.monotonic() + CACHE_S
        # Shielded, because other requests wait for the same task.
        for shard in await asyncio.shield(self._fetching):
            if shard in self._shards.members.entries:
                problem.extra["writable"] = self._shards.place_of(shard)
                return

    async def _fetch(self) -> list[int]:
        """Return the numbers of the shards that take messages, beginning behind this shard's."""
        replies = await self._shards.fetch_from_others("/v1/store/writes", self._token())
        own = self._shards.own
        taking = [shard for shard, body in replies.answers.items() if _takes_messages(body)]
        return sorted(taking, key=lambda shard: (shard < own, shard))


def _takes_messages(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Writes).taken
    except msgspec.MsgspecError:
        return False
