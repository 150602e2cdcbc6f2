"""Puts that need a file which is not made yet: the event loop goes on while a thread makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from mqstore.storage.errors import FilePending, PageCacheBusy

THREADS: Final = 4
"""Making a file is waiting for syncs, which the file system joins."""
FILES_MAX: Final = 10
"""That one put may wait for; others may fill each segment before it comes to its turn."""

Result = TypeVar("Result")


class FilesDue:
    """Used on one event loop only. All who need the same file wait for one making of it, and go on
    in the order in which they came."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS, "make-files")
        self._making: dict[Path, asyncio.Future[None]] = {}

    async def put(self, append: Callable[[], Result]) -> Result:
        """What ``append`` returns, once every file is there that it needs. Raises what it raises,
        and SegmentCreationFailed."""
        for _ in range(FILES_MAX):
            try:
                return append()
            except FilePending as pending:
                await self._made(pending)
        raise PageCacheBusy(f"{FILES_MAX} files were made and filled by others; try later")

    async def _made(self, pending: FilePending) -> None:
        making = self._making.get(pending.path)
        if making is None:
            making = self._loop.run_in_executor(self._threads, pending.make)
            self._making[pending.path] = making
            making.add_done_callback(lambda made: self._forget(pending.path, made))
        await asyncio.shield(making)

    def _forget(self, path: Path, made: asyncio.Future[None]) -> None:
        del self._making[path]
        if not made.cancelled():
            made.exception()  # else asyncio complains where nobody waits any more
