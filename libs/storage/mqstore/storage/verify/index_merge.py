"""Merges the items of all index files, in the order they were written, with the log's records.

Items are written in log order, so one walk over both finds the items of each record and the records
of each item, in bounded memory. An item out of that order is handled by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from mqstore.storage.index.file import ITEM, IndexFile, items_start
from mqstore.storage.layout import INDEX_ITEM_SIZE

_BLOCK_ITEMS: Final = 4_096


class Item(NamedTuple):
    """One item with its file and number."""

    file: IndexFile
    number: int
    hash: int
    physical_offset: int
    seconds: int
    previous: int

    @property
    def position(self) -> int:
        """Its position in the file."""
        return items_start(self.file.slots) + self.number * INDEX_ITEM_SIZE


def items_of(file: IndexFile, stop: int | None = None) -> Iterator[Item]:
    """Yield items 1 to before ``stop`` (default: the file's count), read block by block."""
    end = min(file.index_count if stop is None else stop, file.index_num)
    for first in range(1, end, _BLOCK_ITEMS):
        at = items_start(file.slots) + first * INDEX_ITEM_SIZE
        length = min(_BLOCK_ITEMS, end - first) * INDEX_ITEM_SIZE
        block = bytes(file.view[at : at + length])
        for number, fields in zip(count(first), ITEM.iter_unpack(block), strict=False):
            yield Item(file, number, *fields)


class IndexMerge:
    """A cursor over the items of several files, moved along the log."""

    def __init__(self, files: tuple[IndexFile, ...]) -> None:
        self._items = _in_order(files)
        self._next: tuple[bool, Item] | None = next(self._items, None)

    def before(self, offset: int) -> Iterator[Item]:
        """Yield items that belong to no record up to the one at ``offset``, and those out of
        order."""
        while self._next is not None:
            in_order, item = self._next
            if in_order and item.physical_offset >= offset:
                return
            self._next = next(self._items, None)
            yield item

    def at(self, offset: int) -> Iterator[tuple[bool, Item]]:
        """Yield items of the record at ``offset`` (True), and those out of order between them."""
        while self._next is not None:
            in_order, item = self._next
            if in_order and item.physical_offset > offset:
                return
            self._next = next(self._items, None)
            yield in_order, item


def _in_order(files: tuple[IndexFile, ...]) -> Iterator[tuple[bool, Item]]:
    """Yield every item, and whether its offset fits between its neighbours'."""
    reached, held = 0, None
    for item in (item for file in files for item in items_of(file)):
        if held is not None and item.physical_offset < held.physical_offset:
            if item.physical_offset < reached:
                yield False, item
                continue
            yield False, held
        elif held is not None:
            reached = held.physical_offset
            yield True, held
        held = item
    if held is not None:
        yield True, held
