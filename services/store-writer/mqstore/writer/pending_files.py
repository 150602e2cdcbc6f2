"""Puts that wait for a file: a thread makes the file while the event loop continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from mqstore.storage.errors import FilePending, PageCacheBusy

THREADS: Final = 4
"""Number of threads. Making a file mostly waits for syncs, which the file system combines."""
FILES_MAX: Final = 10
"""Maximum number of files that one put waits for, since other puts may fill each of them first."""

Result = TypeVar("Result")


class PendingFiles:
    """Makes files for puts. Used on one event loop only.

    Puts that need the same file wait for one thread, and continue in the order of arrival.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS, "make-files")
        self._making: dict[Path, asyncio.Future[None]] = {}

    async def put(self, append: Callable[[], Result]) -> Result:
        """Call ``append`` until the files that it needs are made, and return its result.

        Raises what ``append`` raises, SegmentCreationFailed, PageCacheBusy after FILES_MAX files.
        """
        for _ in range(FILES_MAX):
            try:
                return append()
            except FilePending as pending:
                await self._await_file(pending)
        raise PageCacheBusy(f"{FILES_MAX} files were made and filled by others; try later")

    async def _await_file(self, pending: FilePending) -> None:
        making = self._making.get(pending.path)
        if making is None:
            making = self._loop.run_in_executor(self._threads, pending.make)
            self._making[pending.path] = making
            making.add_done_callback(lambda made: self._forget(pending.path, made))
        await asyncio.shield(making)

    def _forget(self, path: Path, made: asyncio.Future[None]) -> None:
        del self._making[path]
        if not made.cancelled():
            made.exception()  # else asyncio logs an exception that no put awaits
