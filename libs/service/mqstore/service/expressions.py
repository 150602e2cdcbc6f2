"""Filter expressions of requests, compiled off the event loop.

Compiling 4 KB takes some 50 ms of pure Python: one thread does it for the whole process, so that
the event loop shares the interpreter with one competitor, and a client may have a few waiting.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mqstore.service.limits import Budget
from mqstore.storage.filter import Filter, compile_expression, find_compiled
from mqstore.storage.formats import StoreFormat

COMPILED_AT_ONCE_MAX: Final = 16
"""Expressions that wait to be compiled, or are being: less than a second of work."""
CLIENT_SHARE: Final = 25
"""Percent of them that one client (an address) may have."""


class Compilations:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self.waiting = Budget("expressions being compiled", COMPILED_AT_ONCE_MAX, CLIENT_SHARE)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile-filter")

    async def compiled(self, text: str, store_format: StoreFormat, client: str) -> Filter:
        """The compiled expression. Raises FilterError, and Problem (429, 503) where too many are
        being compiled; the same expression again takes nothing while it is cached."""
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
        self._thread.shutdown(wait=False, cancel_futures=True)
