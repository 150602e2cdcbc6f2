"""Derives the slot and item counts of a store's index files from their content.

A file does not name them. Its length allows many pairs, its items allow one: only zeros follow the
last item, so this item ends within 20 bytes of the file's last byte that is not zero. With the
number of items that leaves five successive counts of slots, and the length, which gives the count
modulo 5, leaves one of these. The pair must then agree with the file's header, its slots and the
chains of its items. (A lone item of hash 0 at offset 0 is all zeros, and shows nothing.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from mqstore.storage.config import INT32_MAX
from mqstore.storage.index.file import HEADER, ITEM, IndexHeader, IndexItem, items_start
from mqstore.storage.layout import INDEX_HEADER_SIZE, INDEX_ITEM_SIZE, INDEX_SLOT_SIZE
from mqstore.storage.seams import FileSystem

FILES_READ: Final = 4
"""Maximum number of files that are read: each of them is sufficient."""
ITEMS_CHECKED: Final = 1_000
"""Number of items that are checked from either end of a file."""
_CHUNK_SIZE: Final = 4 << 20
_PAGE_SIZE: Final = 4096
_PAGES_KEPT: Final = 1_000
"""Items that are checked lie side by side, and so do most slots of a small file."""
_SLOTS_OF_ITEM: Final = INDEX_ITEM_SIZE // INDEX_SLOT_SIZE


@dataclass(frozen=True, slots=True)
class IndexSizes:
    """maxHashSlotNum and maxIndexNum."""

    slots: int
    index_num: int

    def __str__(self) -> str:
        return f"maxHashSlotNum={self.slots} and maxIndexNum={self.index_num}"


def find(files: FileSystem, paths: Sequence[Path]) -> IndexSizes | None:
    """Find the sizes in the newest of these files, which are sorted by name.

    A truncated file shows its slots only. None where no file agrees with a pair, or files of
    different stores are mixed.
    """
    newest = (_Reader(files, path).sizes() for path in paths[-FILES_READ:])
    shown = [sizes for sizes in newest if sizes is not None]
    if len({sizes.slots for sizes in shown}) != 1:
        return None
    return max(shown, key=lambda sizes: sizes.index_num)


class _Reader:
    """One index file, read in parts."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        stat = files.stat(path)
        self._files = files
        self._path = path
        self._length = 0 if stat is None else stat.size
        self._page = lru_cache(_PAGES_KEPT)(self._read_page)

    def sizes(self) -> IndexSizes | None:
        """The pair that this file agrees with, or None."""
        if not INDEX_HEADER_SIZE < self._length <= INT32_MAX or self._length % INDEX_SLOT_SIZE:
            return None
        header = IndexHeader(*HEADER.unpack(self._bytes(0, INDEX_HEADER_SIZE)))
        items = header.index_count - 1
        found = self._candidate(items) if items > 0 else None
        return found if found is not None and self._agrees(header, found) else None

    def _candidate(self, items: int) -> IndexSizes | None:
        least_end = self._used_end()
        units = (self._length - INDEX_HEADER_SIZE) // INDEX_SLOT_SIZE  # slots + 5 * items
        before = INDEX_HEADER_SIZE + (items + 1) * INDEX_ITEM_SIZE
        least = -(-(least_end - before) // INDEX_SLOT_SIZE)
        slots = least + (units - least) % _SLOTS_OF_ITEM
        index_num = (units - slots) // _SLOTS_OF_ITEM
        return IndexSizes(slots, index_num) if slots > 0 and index_num > items else None

    def _used_end(self) -> int:
        """The position after the last byte that is not zero."""
        end = self._length
        while end > INDEX_HEADER_SIZE:
            start = max(INDEX_HEADER_SIZE, end - _CHUNK_SIZE)
            used = self._read(start, end - start).rstrip(b"\0")
            if used:
                return start + len(used)
            end = start
        return end

    def _agrees(self, header: IndexHeader, sizes: IndexSizes) -> bool:
        last = header.index_count - 1
        first_offset, last_offset = (self._item(sizes, n).physical_offset for n in (1, last))
        if (first_offset, last_offset) != (header.begin_physical, header.end_physical):
            return False
        numbers = {*range(1, min(last, ITEMS_CHECKED) + 1)}
        numbers |= {*range(max(1, last - ITEMS_CHECKED), last + 1)}
        return all(self._is_chained(sizes, number, last) for number in numbers)

    def _is_chained(self, sizes: IndexSizes, number: int, last: int) -> bool:
        """Whether an item belongs to the slot that leads to it, like its slot's newest item and the
        item before it."""
        item = self._item(sizes, number)
        if item.hash < 0 or not 0 <= item.previous < number:
            return False
        slot = item.hash % sizes.slots
        head = self._slot(slot)
        if not number <= head <= last:
            return False
        return all(
            self._item(sizes, other).hash % sizes.slots == slot
            for other in (head, item.previous)
            if other
        )

    def _item(self, sizes: IndexSizes, number: int) -> IndexItem:
        at = items_start(sizes.slots) + number * INDEX_ITEM_SIZE
        return IndexItem(*ITEM.unpack(self._bytes(at, INDEX_ITEM_SIZE)))

    def _slot(self, slot: int) -> int:
        data = self._bytes(INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE)
        return int.from_bytes(data, signed=True)

    def _bytes(self, offset: int, length: int) -> bytes:
        """Bytes of one page, or of two."""
        number, start = divmod(offset, _PAGE_SIZE)
        found = self._page(number)[start : start + length]
        if len(found) < length:
            found += self._page(number + 1)[: length - len(found)]
        return found

    def _read_page(self, number: int) -> bytes:
        return self._read(number * _PAGE_SIZE, _PAGE_SIZE)

    def _read(self, offset: int, length: int) -> bytes:
        return self._files.read_range(self._path, offset, length, keep=True)
