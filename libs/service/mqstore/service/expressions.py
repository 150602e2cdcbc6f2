"""Filter expressions of requests, compiled off the event loop.

To compile 4 KB takes some 50 ms of pure Python. One thread compiles for the whole process, so that
one thread at most competes with the event loop for the interpreter.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mqstore.service.limits import Budget
from mqstore.storage.filter import Filter, compile_expression, find_compiled
from mqstore.storage.formats import StoreFormat

COMPILED_AT_ONCE_MAX: Final = 16
"""Expressions that are compiled or wait for it: less than a second of work."""
CLIENT_SHARE: Final = 25
"""Percent of COMPILED_AT_ONCE_MAX that one client (an address) may have."""


class Compilations:
    """A compiler of filter expressions, with limits by client. Used on the event loop only."""

    def __init__(self) -> None:
        self.waiting = Budget("expressions being compiled", COMPILED_AT_ONCE_MAX, CLIENT_SHARE)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile-filter")

    async def compile(self, text: str, store_format: StoreFormat, client: str) -> Filter:
        """Compile an expression, or return it from the cache, which no limit applies to.

        Raises FilterError; Problem (429, 503) while too many are compiled.
        """
        known = find_compiled(text, store_format)
        if known is not None:
            return known
        self.waiting.take(client)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, compile_expression, text, store_format
            )
        finally:
            self.waiting.give_back(client)

    def stop(self) -> None:
        """Cancel what waits, and stop the thread without waiting for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)
