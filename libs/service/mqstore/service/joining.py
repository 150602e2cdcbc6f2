"""Whether the other shards know of this one yet: until they do, an answer of theirs would lack what
is stored here without saying so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Final

from mqstore.service import logs
from mqstore.service.membership import Membership

log = logs.get(__name__)

KnownAt = Callable[[str], Awaitable[Set[int] | None]]
"""The shards that the service at a URL has in its list; None: it does not tell."""


class Joining:
    """Decided once, and anew when this shard is in its own list again after it was not. Used on
    the event loop only."""

    def __init__(self, members: Membership, known_at: KnownAt) -> None:
        self._members = members
        self._known_at = known_at
        self.joined: Final = asyncio.Event()
        self.reason: str | None = None
        """Why this shard takes no part, or None."""
        if members.alone:
            self.joined.set()
        else:
            self.reason = "it is not known yet whether the other shards know of this one"

    async def look(self) -> None:
        """Once more; waits for the others. One that does not answer stops nobody: it reads the list
        when it starts."""
        own = self._members.own
        if not self._members.lists_own:
            self._say(f"shard {own} is not in the list of shards")
        elif self.reason is not None:
            lacking = ", ".join(map(str, await self._lacking()))
            self._say(
                f"shard {own} is not in the list of these yet: {lacking}" if lacking else None
            )

    async def _lacking(self) -> list[int]:
        """Those of which a service answers and does not know this shard."""
        urls = [
            (each.shard, url)
            for each in self._members.others
            for url in (each.writer_url, each.query_url)
        ]
        known = await asyncio.gather(*(self._known_at(url) for _, url in urls))
        own = self._members.own
        return sorted(
            {
                shard
                for (shard, _), numbers in zip(urls, known, strict=True)
                if numbers is not None and own not in numbers
            }
        )

    def _say(self, reason: str | None) -> None:
        if reason == self.reason:
            return
        self.reason = reason
        if reason is None:
            self.joined.set()
            log.info("the other shards know of this one", shards=self._members.numbers)
        else:
            self.joined.clear()
            log.warning("this shard takes no part", reason=reason)
