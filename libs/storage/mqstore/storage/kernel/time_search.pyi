"""Searches for the entry of a time in one queue, by the store times of its records."""

from typing import Protocol

from mqstore.storage.kernel.lookup import LogWindow

class _Blocks(Protocol):
    """What is used of a queue."""

    def block(self, index: int) -> tuple[memoryview, int] | None: ...

def first_at(
    window: LogWindow, queue: _Blocks, timestamp_ms: int, low: int, high: int
) -> int | None:
    """Find the first entry from ``low`` whose record was stored at or after a time, by a binary
    search over store times, which must not go back.

    ``high`` where there is none. None where any examined entry is not plain.
    """
