"""One index file: a hash table from ``topic#key`` to physical offsets, chained newest first.

Header of 40 bytes (begin and end store time, begin and end physical offset, all 8; slots in use 4,
index count 4), slots of 4 bytes, items of 20: hash 4, physical offset 8, whole seconds since the
file's begin 4, previous item 4. Item 0 is never used and the count starts at 1. Source: IndexFile
and IndexHeader of 4.9.7 and 5.4.0.

One thread at a time puts; any thread or process may query meanwhile.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.storage._kernel import index_find, index_put
from mqstore.storage.layout import INDEX_HEADER_SIZE, INDEX_ITEM_SIZE, INDEX_SLOT_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile

HEADER: Final = struct.Struct(">4q2i")
_TIMES: Final = struct.Struct(">2q")
_COUNT_AT: Final = 36
_INT: Final = struct.Struct(">i")
ITEM: Final = struct.Struct(">iqii")
FIND_AT_ONCE: Final = 256
"""Number of entries that one call of the kernel finds."""
OFFSET_MAX: Final = (1 << 63) - 1
TIME_STEP_MS: Final = 1_000
"""Items keep whole seconds, so an item may appear up to one second older than its record."""


class IndexHeader(NamedTuple):
    """A decoded header; times in ms, offsets physical."""

    begin_ms: int
    end_ms: int
    begin_physical: int
    end_physical: int
    slots_used: int
    index_count: int


class IndexItem(NamedTuple):
    """A decoded item."""

    hash: int
    physical_offset: int
    seconds: int
    previous: int


def file_size(slots: int, index_num: int) -> int:
    """Bytes of an index file with so many slots and items (item 0 included)."""
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + index_num * INDEX_ITEM_SIZE


def items_start(slots: int) -> int:
    """The position of item 0."""
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE


class IndexFile:
    """A mapped index file of ``slots`` slots and ``index_num`` items. See the module."""

    def __init__(self, mapped: MappedFile, slots: int, index_num: int) -> None:
        self.path: Path = mapped.path
        self.slots = slots
        self.index_num = index_num
        self.mapped = mapped
        # Referenced here, so that a query outlives the file's removal.
        self.view = mapped.view
        self._first_at = self._item_at(1)

    @property
    def header(self) -> IndexHeader:
        """The header as it stands in the file."""
        return IndexHeader(*HEADER.unpack_from(self.view))

    @property
    def index_count(self) -> int:
        """The number of the next item, from 1."""
        count: int = _INT.unpack_from(self.view, _COUNT_AT)[0]
        return max(count, 1)

    @property
    def end_physical(self) -> int:
        """The physical offset of the last indexed message."""
        return self.header.end_physical

    @property
    def is_full(self) -> bool:
        """Whether the file takes no more items."""
        return self.index_count >= self.index_num

    def damage(self) -> str | None:
        """Why the header is impossible, or None."""
        header = self.header
        if not 0 <= header.index_count <= self.index_num:
            return f"index count {header.index_count} is not in 0..{self.index_num}"
        if not 0 <= header.slots_used <= min(self.slots, max(header.index_count, 1)):
            return f"{header.slots_used} slots in use are more than {self.slots} slots or the items"
        if min(header.begin_ms, header.end_ms, header.begin_physical, header.end_physical) < 0:
            return "a time or offset is negative"
        if header.begin_physical > header.end_physical:
            return f"begins at offset {header.begin_physical}, after its end {header.end_physical}"
        return None

    def carry(self, physical_offset: int, store_ms: int) -> None:
        """Begin a new file with the end values of the previous one, as RocketMQ does."""
        HEADER.pack_into(self.view, 0, store_ms, store_ms, physical_offset, physical_offset, 0, 0)

    def put(self, key_hash: int, physical_offset: int, store_ms: int) -> bool:
        """Insert one item; False when the file is full.

        Raises OSError when there are no disk blocks.
        """
        if self.is_full:
            return False
        self.mapped.ensure_reserved(self._item_at(self.index_count + 1))
        return index_put(self.view, self.slots, self.index_num, key_hash, physical_offset, store_ms)

    def make_room(self, items: int) -> int:
        """Reserve disk blocks for the next items; returns the number of items that fit now."""
        room = min(self.index_num, self.index_count + items)
        self.mapped.ensure_reserved(self._item_at(room))
        return room

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether an item may be from this time range (inclusive, to within a second)."""
        begin, end = _TIMES.unpack_from(self.view)
        return bool(begin <= end_ms and begin_ms <= end + TIME_STEP_MS)

    def find(
        self, key_hash: int, begin_ms: int, end_ms: int, below: int = OFFSET_MAX
    ) -> Iterator[int]:
        """Yield the physical offsets of a hash, newest first, whose records may be in the time
        range; those from ``below`` on may be left out.

        The caller compares topic, key and time with the record itself.
        """
        entry = self._entry_before(key_hash, below)
        first_offset = self._first_of(key_hash)
        while entry:
            found, entry = index_find(
                *(self.view, self.slots, self.index_num, key_hash),
                *(begin_ms - TIME_STEP_MS, end_ms, FIND_AT_ONCE, entry),
            )
            for offset in found:
                if offset == first_offset:
                    first_offset = None
                yield offset
        if first_offset is not None:
            yield first_offset

    def _entry_before(self, key_hash: int, below: int) -> int:
        """Return the entry at which a walk finds all entries of a hash below an offset: the one at
        that offset or just below it, as a page of an answer names it; 0 where all are newer, -1 for
        the newest one of the hash's slot.

        Entries have growing offsets, as records are indexed in the order of the log.
        """
        count = min(self.index_count, self.index_num)
        if count <= 1 or self._offset_of(count - 1) < below:
            return -1
        if self._offset_of(1) >= below:
            return 0
        number = bisect_left(range(count), below, lo=1, key=self._offset_of)
        for step, wanted in ((1, below), (-1, below - 1)):
            at = number if step > 0 else number - 1
            while 0 < at < count and (item := self.item(at)).physical_offset == wanted:
                if item.hash == key_hash:
                    return at
                at += step
        return -1

    def _offset_of(self, number: int) -> int:
        return self.item(number).physical_offset

    def item(self, number: int) -> IndexItem:
        """Decode an item."""
        return IndexItem(*ITEM.unpack_from(self.view, self._item_at(number)))

    def trailing_items_of(self, physical_offset: int) -> tuple[int, bool]:
        """The number of the last items that belong to this record, and whether all items of the
        file do."""
        number = self.index_count - 1
        while number >= 1 and self.item(number).physical_offset == physical_offset:
            number -= 1
        return self.index_count - 1 - number, number == 0

    def repair_tail(self) -> int:
        """Unlink items beyond the count from their chains; returns their number.

        A killed writer may have linked items that its header does not count yet; a later item of
        the same number would cut off the older part of those chains.
        """
        count = stop = self.index_count
        while stop < self.index_num and any(self.item(stop)):
            stop += 1
        for number in range(stop - 1, count - 1, -1):
            self._unlink_item(number)
        if stop > count:
            begin, end = self._item_at(count), self._item_at(stop)
            self.view[begin:end] = bytes(end - begin)
        return stop - count

    def count_from_one(self) -> None:
        """Write an empty file's count as 1, as 5.x does at a clean close."""
        _INT.pack_into(self.view, _COUNT_AT, self.index_count)

    def flush(self) -> None:
        """Sync the file. Any thread, one at a time. Raises StoreFailed."""
        self.mapped.wrote_position = self.mapped.size
        self.mapped.flushed_position = 0
        self.mapped.flush()

    def _first_of(self, key_hash: int) -> int | None:
        """The first item's offset when it has this hash.

        Its seconds count from the end of the previous file, so its time is meaningless.
        """
        if self.index_count <= 1:
            return None
        if _INT.unpack_from(self.view, self._first_at)[0] != key_hash:
            return None
        return self.item(1).physical_offset

    def _unlink_item(self, number: int) -> None:
        item = self.item(number)
        if item.hash < 0:
            return
        slot_at = INDEX_HEADER_SIZE + item.hash % self.slots * INDEX_SLOT_SIZE
        if _INT.unpack_from(self.view, slot_at)[0] == number:
            previous = item.previous if 0 <= item.previous < number else 0
            _INT.pack_into(self.view, slot_at, previous)

    def _item_at(self, number: int) -> int:
        return items_start(self.slots) + number * INDEX_ITEM_SIZE


def why_untrusted(file: IndexFile, safe: bool, index_ms: int, log_end: int | None) -> str | None:
    """Why a file may not be what was written, or None; see ``IndexService.load``."""
    header = file.header
    if not safe and file.index_count <= 1:
        return "holds nothing: it was made just before the end, and maybe not synced"
    if not safe and header.end_ms >= index_ms:
        return f"ends at {header.end_ms} ms, not before the checkpoint's {index_ms}"
    if log_end is not None and file.index_count > 1 and header.end_physical >= log_end:
        return f"ends at offset {header.end_physical}, beyond the log's end {log_end}"
    return None


def why_misplaced(
    file: IndexFile, before: Sequence[IndexFile], gap: str | None, *, is_last: bool
) -> str | None:
    """Why a file cannot stand behind its predecessor; ``gap`` is the first dropped name."""
    if gap is not None and file.path.name > gap:
        return f"follows {gap}, which is dropped"
    if before and file.end_physical < before[0].end_physical:
        return f"ends at offset {file.end_physical}, before the file before it"
    if not before and not is_last and file.index_count <= 1:
        return "holds nothing, although others follow it"
    return None
