"""The check that the services of all other shards have this shard in their lists.

Until they do, their replies lack the messages of this shard and are marked complete all the same.
So this shard is not ready before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Final

from mqstore.service import logs
from mqstore.service.membership import Membership

log = logs.get(__name__)

FetchList = Callable[[str], Awaitable[Set[int] | None]]
"""Returns the shards in the list of the service at a URL; None if it does not reply."""


class Joining:
    """The state of this shard's admission. Used on the event loop only.

    It is checked until it holds, and again after this shard was missing in its own list.
    """

    def __init__(self, members: Membership, fetch_list: FetchList) -> None:
        self._members = members
        self._fetch_list = fetch_list
        self.joined: Final = asyncio.Event()
        self.reason: str | None = None
        """Why this shard is not ready, or None."""
        if members.alone:
            self.joined.set()
        else:
            self.reason = "the lists of the other shards have not been checked yet"

    async def check(self) -> None:
        """Fetch the lists of the other shards, and update ``joined`` and ``reason``.

        A service that does not reply counts as one that knows this shard: it reads the list when
        it starts.
        """
        own = self._members.own
        if not self._members.lists_own:
            self._update(f"shard {own} is not in the list of shards")
        elif self.reason is not None:
            lacking = ", ".join(map(str, await self._find_lacking()))
            self._update(
                f"shard {own} is not in the lists of these shards yet: {lacking}"
                if lacking
                else None
            )

    async def _find_lacking(self) -> list[int]:
        """Return the shards with a service that replies and has no entry of this shard."""
        urls = [
            (each.shard, url)
            for each in self._members.others
            for url in (each.writer_url, each.query_url)
        ]
        known = await asyncio.gather(*(self._fetch_list(url) for _, url in urls))
        own = self._members.own
        return sorted(
            {
                shard
                for (shard, _), numbers in zip(urls, known, strict=True)
                if numbers is not None and own not in numbers
            }
        )

    def _update(self, reason: str | None) -> None:
        if reason == self.reason:
            return
        self.reason = reason
        if reason is None:
            self.joined.set()
            log.info("this shard is in the list of each other", shards=self._members.numbers)
        else:
            self.joined.clear()
            log.warning("this shard is not ready", reason=reason)
