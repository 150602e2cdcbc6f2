"""Caches recently stored half messages, so that a commit need not read them back.

They equal the log's records, as only the engine appends them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from mqstore.storage.transactions.halves import Half
from mqstore.storage.transactions.records import LogRecord

COUNT_MAX: Final = 50_000
SIZE_MAX: Final = 64 << 20
"""Maximum bytes of bodies and properties."""
RECORD_SIZE: Final = 512
"""Approximate overhead of a record in bytes."""


class RecentHalves:
    """The newest copy of each recent half message. Used by one thread."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], tuple[LogRecord, int]] = OrderedDict()
        """By keys of transaction and message: the record with its size."""
        self._size = 0

    def keep(self, half: Half, stored: LogRecord) -> None:
        """Cache a record in place of an older copy."""
        self.drop([half])
        size = _size(stored)
        self._stored[half.key, half.uniq_key] = stored, size
        self._size += size
        while self._size > SIZE_MAX or len(self._stored) > COUNT_MAX:
            _, (_, size) = self._stored.popitem(last=False)
            self._size -= size

    def find(self, half: Half) -> LogRecord | None:
        """The record of exactly this copy, or None."""
        stored, _ = self._stored.get((half.key, half.uniq_key), (None, 0))
        if stored is None or stored.physical_offset != half.physical_offset:
            return None
        return stored

    def drop(self, found: Iterable[Half]) -> None:
        """Remove records that are not needed any more."""
        for half in found:
            _, size = self._stored.pop((half.key, half.uniq_key), (None, 0))
            self._size -= size

    def clear(self) -> None:
        """Remove all records."""
        self._stored.clear()
        self._size = 0


def _size(stored: LogRecord) -> int:
    table = stored.record.properties
    texts = sum(len(name) + len(value) for name, value in table.items())
    return RECORD_SIZE + len(stored.record.body) + texts
