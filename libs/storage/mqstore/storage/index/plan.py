"""Plans the index files of a sequential build from counts of items alone.

A file holds ``maxIndexNum`` - 1 items, in the order of the log. Its header names the first and the
last of them; its first item's seconds count from the end of the previous file. A record begins a
file when the last one is full, even if the record has no keys. Source: IndexService of 4.9.7 and
5.4.0.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from mqstore.storage.index.file import file_size, items_start
from mqstore.storage.index.scan import Chunk
from mqstore.storage.layout import INDEX_ITEM_SIZE

_HEADER: Final = struct.Struct(">4q2i")

Item = tuple[int, int]
"""Physical offset and store time in ms."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes and contents of a store's index files."""

    slots: int
    index_num: int
    tags: bool
    """Whether TAGS are indexed, as 5.x does."""

    @property
    def capacity(self) -> int:
        """Items of a full file: item 0 is never used."""
        return self.index_num - 1

    @property
    def file_size(self) -> int:
        """Bytes of one file."""
        return file_size(self.slots, self.index_num)

    def used_size(self, items: int) -> int:
        """Bytes of a file that so many items take; the rest is zeros."""
        return items_start(self.slots) + (items + 1) * INDEX_ITEM_SIZE

    def slots_of(self, part: int, parts: int) -> range:
        """The slots whose items ``IndexItems`` puts into a part."""
        return range(-(-part * self.slots // parts), -(-(part + 1) * self.slots // parts))


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file to be built."""

    first: int
    """Number of items in all files before it."""
    items: int
    begin: Item
    end: Item
    carried_ms: int
    """End time of the previous file; 0 for the first one."""

    def header(self, slots_used: int) -> bytes:
        """The bytes of the header. Without items the count is 0, until 5.x closes the file."""
        count = self.items + 1 if self.items else 0
        (begin, begin_ms), (end, end_ms) = self.begin, self.end
        return _HEADER.pack(begin_ms, end_ms, begin, end, slots_used, count)


class IndexPlan:
    """The files for all chunks of a log, which are in its order."""

    def __init__(self, chunks: Sequence[Chunk], layout: Layout) -> None:
        self.layout = layout
        self.chunks = chunks
        self.firsts = list(accumulate((chunk.items for chunk in chunks), initial=0))
        """For each chunk, the number of its item 0 among all items; last, the number of all
        items."""

    @property
    def items(self) -> int:
        """Number of items."""
        return self.firsts[-1]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(chunk.records for chunk in self.chunks)

    @property
    def file_count(self) -> int:
        """Number of files."""
        capacity = self.layout.capacity
        counts = zip(self.chunks, self.firsts, strict=False)
        last = max((n + c.before_last for c, n in counts if c.records), default=-1)
        return max(-(-self.items // capacity), last // capacity + 1)

    @property
    def staged_bytes(self) -> int:
        """Bytes of disk blocks that all files take."""
        return sum(self.layout.used_size(self._items_of(n)) for n in range(self.file_count))

    def files(self, item: Callable[[Chunk, int], Item]) -> list[PlannedFile]:
        """Plan each file; ``item`` finds an item by its number in a chunk."""
        planned: list[PlannedFile] = []
        end: Item = (0, 0)
        for number in range(self.file_count):
            first, items, carried_ms = number * self.layout.capacity, self._items_of(number), end[1]
            begin = end
            if items:
                begin = item(*self._place(first))
                end = item(*self._place(first + items - 1))
            planned.append(PlannedFile(first, items, begin, end, carried_ms))
        return planned

    def _items_of(self, number: int) -> int:
        capacity = self.layout.capacity
        return min(max(self.items - number * capacity, 0), capacity)

    def _place(self, item: int) -> tuple[Chunk, int]:
        at = bisect_right(self.firsts, item) - 1
        return self.chunks[at], item - self.firsts[at]
