"""Half messages that were stored a moment ago: a commit need not read them back.

They are what the log has, as only the engine appends them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from mqstore.storage.transactions.halves import Half
from mqstore.storage.transactions.records import Stored

COUNT_MAX: Final = 50_000
SIZE_MAX: Final = 64 << 20
"""Bytes of bodies and properties."""
RECORD_SIZE: Final = 512
"""About what a record takes besides."""


class RecentHalves:
    """The newest copy of each half, the latest of them. Used by one thread."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], tuple[Stored, int]] = OrderedDict()
        """By keys of transaction and message; with its size."""
        self._size = 0

    def keep(self, half: Half, stored: Stored) -> None:
        """In place of an older copy."""
        self.drop([half])
        size = _size(stored)
        self._stored[half.key, half.uniq_key] = stored, size
        self._size += size
        while self._size > SIZE_MAX or len(self._stored) > COUNT_MAX:
            _, (_, size) = self._stored.popitem(last=False)
            self._size -= size

    def find(self, half: Half) -> Stored | None:
        """The record of exactly this copy."""
        stored, _ = self._stored.get((half.key, half.uniq_key), (None, 0))
        if stored is None or stored.physical_offset != half.physical_offset:
            return None
        return stored

    def drop(self, found: Iterable[Half]) -> None:
        """These are not needed any more."""
        for half in found:
            _, size = self._stored.pop((half.key, half.uniq_key), (None, 0))
            self._size -= size

    def clear(self) -> None:
        self._stored.clear()
        self._size = 0


def _size(stored: Stored) -> int:
    table = stored.record.properties
    texts = sum(len(name) + len(value) for name, value in table.items())
    return RECORD_SIZE + len(stored.record.body) + texts
