"""One topic-queue: entry n, of 20 bytes, is always at byte n x 20 of its files.

An entry is physical offset 8, size 4, tagsCode 8. A file is made with its first entry; the entries
before that one in the file are pre-blank (offset 0, size 0x7FFFFFFF, tagsCode 0). Source:
ConsumeQueue of 4.9.7 and 5.4.0. A later hole, left by a record that is in the log no more, is
filled with the entry before the hole: a broker then delivers that message once more, where any
other filling loses messages (docs/rocketmq-observed.md). An entry that names a record never equals
the one before, so an equal entry is a filler.

One thread at a time writes (the dispatcher, under its lock); any thread may read entries below
``max_index``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final

from mqstore.storage._kernel import QueueWindow
from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.mapped.mapped_file_queue import FileRange
from mqstore.storage.queues.due_fillers import DueFillers
from mqstore.storage.queues.ext_addresses import first_address, last_address
from mqstore.storage.queues.lost_files import close_gaps, make_again
from mqstore.storage.queues.min_index import MinIndex
from mqstore.storage.queues.queue_entry import ENTRY, PRE_BLANK, Put, QueueEntry, entries_in
from mqstore.storage.queues.queue_holes import (
    first_not_blank,
    has_room,
    is_torn,
    out_of_order,
    sector_split,
    without_size,
)
from mqstore.storage.queues.queue_search import search
from mqstore.storage.queues.store_times import LogView, store_time
from mqstore.storage.system.sparse import SMALL_CHUNK, last_nonzero
from mqstore.storage.topic_names import raw_name

if TYPE_CHECKING:
    from mqstore.storage.codec.ext_unit import ExtUnit
    from mqstore.storage.mapped.mapped_file import MappedFile
    from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayFile
    from mqstore.storage.queues.consume_queue_ext import ConsumeQueueExt

_OFFSET_MAX: Final = 2**63 - 1
_BASE_OFFSET: Final = attrgetter("base_offset")


class ConsumeQueue:
    """One topic-queue over its mapped files. See the module for the format and threads."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        files: MappedFileQueue,
        file_size: int,
        ext: ConsumeQueueExt | None = None,
    ) -> None:
        """``ext`` holds the units of entries; None when the queue has none."""
        self.ext = ext
        self.extends = False
        """Whether new entries get units."""
        self.topic = topic
        self.raw_topic = raw_name(topic)
        self.queue_id = queue_id
        self.file_size = file_size
        self.entries_per_file = file_size // QUEUE_ENTRY_SIZE
        self.files = files
        self.window = QueueWindow()
        self._minimum = MinIndex(self)
        self._named = 0
        """First index of a file that held no entry and was removed."""
        self._attached: MappedFile | None = None
        self._publish_lock = Lock()
        self._changed: set[MappedFile] = set()
        """Files that were changed below the flushed position."""
        self.due_fillers = DueFillers(self, self._overwrite)
        self._quiet_at = -1
        """``max_index`` at the last ``may_rest``."""

    def load(self) -> list[StrayFile]:
        """Map the files and find the end; returns the stray files.

        The end is after the last entry that is not all zero, so entries lost in the middle show as
        holes and are filled by the next ``put`` of them.
        """
        strays = self.files.load() + (self.ext.load() if self.ext is not None else [])
        self._minimum.set(self.first_index)
        self.window.next_index = self._find_end()
        self._remove_from(self.max_index)
        self._detach()
        return strays

    @property
    def first_index(self) -> int:
        """The queue offset at which the first file begins; 0 when there is none."""
        return self.files.min_offset // QUEUE_ENTRY_SIZE

    @property
    def min_index(self) -> int:
        """The first entry at or above the log's minimum, as last corrected."""
        return self._minimum.get()

    @property
    def max_index(self) -> int:
        """The queue offset of the next entry."""
        return self.window.next_index

    def entry(self, index: int) -> QueueEntry | None:
        """Read entry ``index``; None outside of the files."""
        return self._read(index) if 0 <= index < self.max_index else None

    def block(self, index: int) -> tuple[memoryview, int] | None:
        """The whole file that holds entry ``index``, and the position of the entry in it."""
        mapped = self.files.find(index * QUEUE_ENTRY_SIZE)
        return (
            None if mapped is None else (mapped.view, index * QUEUE_ENTRY_SIZE - mapped.base_offset)
        )

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file of ConsumeQueueExt units that holds an address, and its first address."""
        return None if self.ext is None else self.ext.units(address)

    def entries(self, start: int, stop: int) -> Iterator[tuple[int, QueueEntry]]:
        """Yield the entries from ``start`` to before ``stop`` with their numbers.

        Entries outside of the files are left out. Reads block by block, for scans.
        """
        return entries_in(self.files.files, start, min(stop, self.max_index))

    def last_entries(self) -> Iterator[tuple[int, QueueEntry]]:
        """Yield all entries with their numbers, the newest first."""
        for mapped in reversed(self.files.files):
            first = mapped.base_offset // QUEUE_ENTRY_SIZE
            for index in range(
                min(self.max_index, first + self.entries_per_file) - 1, first - 1, -1
            ):
                entry = self._read(index)
                if entry is not None:
                    yield index, entry

    def is_filler(self, index: int) -> bool:
        """Whether an entry repeats the one before, so that no record is its own."""
        entry, before = self.entry(index), self.entry(index - 1)
        if entry is None or before is None or entry.is_hole:
            return False
        return entry[:2] == before[:2]

    # writing ------------------------------------------------------------------------------

    def put(
        self,
        index: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        unit: ExtUnit | None = None,
    ) -> Put:
        """Write one entry at its place; only holes are overwritten, and entries whose unit is not
        ``unit``. Raises OSError when the disk is full."""
        entry = QueueEntry(physical_offset, size, tags_code)
        if self._begins_anew(index, physical_offset):
            self._remove_all()
        if index < self.max_index:
            return self._put_below(index, entry, unit)
        if not self._may_reach(index, physical_offset):
            return Put.REFUSED
        if not self.files.files:
            self._begin(index)
        if self.max_index < index:
            filler = self._filler(self.max_index)
            while self.max_index < index:
                self._append(filler)
        self._append(ENTRY.pack(*self._with_unit(entry, unit)))
        self.publish()
        return Put.APPENDED

    def _with_unit(self, entry: QueueEntry, unit: ExtUnit | None) -> QueueEntry:
        """Store the unit, then return the entry with its address."""
        if unit is None or self.ext is None or not self.extends:
            return entry
        if not self.ext.is_begun:
            self.ext.begin(last_address(self, self.first_index, self.max_index))
        address = self.ext.put(unit)
        return entry if address is None else entry._replace(tags_code=address)

    def make_room(self) -> None:
        """Extend the window to the next entry: by more blocks of its file, or by the next file."""
        offset = self.max_index * QUEUE_ENTRY_SIZE
        self.publish()
        mapped = self.files.find(offset) or self.files.add(offset - offset % self.file_size)
        self._attach(mapped, offset - mapped.base_offset)

    def aim_window(self, index: int) -> None:
        """Point the kernel's window at the place of entry ``index``."""
        window = self.window
        if window.first_index <= index < window.first_index + window.entries:
            return
        mapped = self.files.find(index * QUEUE_ENTRY_SIZE)
        if mapped is None:  # the next file comes with its first entry
            return
        self.publish()
        end = self.max_index * QUEUE_ENTRY_SIZE - mapped.base_offset
        self._attach(mapped, min(end, mapped.size))

    def publish(self) -> None:
        """Set the files' written positions from the window, for the next flush. Any thread."""
        with self._publish_lock:  # an older end must not replace a newer one
            attached = self._attached
            if attached is not None:
                end = self.max_index * QUEUE_ENTRY_SIZE - attached.base_offset
                attached.wrote_position = min(end, attached.size)

    @property
    def may_be_dirty(self) -> bool:
        """Whether ``flush`` may have something to sync."""
        end = self.window.next_index * QUEUE_ENTRY_SIZE
        has_units = self.ext is not None and self.ext.may_be_dirty
        return end != self.files.flushed_where or has_units or bool(self._changed)

    def flush(self, least_pages: int = 0) -> bool:
        """Sync the written part if it is at least ``least_pages`` pages; returns whether it was
        synced.

        Any thread. Raises StoreFailed.
        """
        if self.ext is not None:
            self.ext.flush(least_pages)  # units first, as entries name them
        self.publish()
        changed, self._changed = self._changed, set()
        for mapped in sorted(
            changed, key=_BASE_OFFSET
        ):  # a fixed order, so that a seed gives one history
            mapped.force_sync()
            mapped.flush()
        return self.files.flush(least_pages) or bool(changed)

    def flush_end(self) -> None:
        """Make the end of the queue durable, including an end that an interrupted truncation left.

        Raises StoreFailed, OSError.
        """
        self.files.sync_names()
        if (last := self.files.last) is not None:
            last.mark_rest_dirty(self.max_index * QUEUE_ENTRY_SIZE - last.base_offset)
            self._changed.add(last)
            self.flush()

    def may_rest(self) -> bool:
        """Whether no entry came since the last call, files are mapped, and all is on disk."""
        before, self._quiet_at = self._quiet_at, self.max_index
        return before == self.max_index and self.is_mapped and not self.may_be_dirty

    def rest(self) -> None:
        """Unmap the files until their next use, if an entry has not come since ``may_rest``. Not
        while another thread writes or flushes."""
        if self._quiet_at == self.max_index and not self.may_be_dirty:
            self._detach()
            for files in self._all_files:
                files.rest()

    @property
    def is_mapped(self) -> bool:
        """Whether any of its files is mapped now."""
        return any(files.is_mapped for files in self._all_files)

    @property
    def _all_files(self) -> tuple[MappedFileQueue, ...]:
        return (self.files,) if self.ext is None else (self.files, self.ext.files)

    # shortening ---------------------------------------------------------------------------

    def correct_min(self, min_physical: int) -> None:
        """Set ``min_index`` to the first entry at or above the log's minimum, as RocketMQ does.

        Without such an entry: ``max_index``. Pre-blank entries count as offset 0. A queue at
        ``rest`` stays so: its entries are read when ``min_index`` is read.
        """
        self._minimum.correct(min_physical)

    def delete_before(self, min_physical: int) -> int:
        """Unlink files whose last entry is below the log's minimum, never the last file; returns
        their number."""
        expired = 0
        for mapped in self.files.files[:-1]:
            last = QueueEntry(*ENTRY.unpack_from(mapped.view, mapped.size - QUEUE_ENTRY_SIZE))
            if last.is_missing or last.physical_offset >= min_physical:
                break
            expired += 1
        if expired:
            self.files.remove_first(expired)
        self.correct_min(min_physical)
        if self.ext is not None:
            address = first_address(self, self.min_index, self.max_index)
            expired += 0 if address is None else self.ext.delete_before(address)
        return expired

    def remove_before(self, index: int) -> None:
        """Remove the entries before one: the queue is then as if it began there. Raises OSError."""
        end = index * QUEUE_ENTRY_SIZE
        self.files.remove_first(sum(each.end_offset <= end for each in self.files.files))
        for mapped in self.files.files:  # one that is in use was not removed
            if (size := min(mapped.size, end - mapped.base_offset)) > 0:
                mapped.ensure_reserved(size)
                mapped.view[:size] = PRE_BLANK * (size // QUEUE_ENTRY_SIZE)
                self._changed.add(mapped)
        self._minimum.set(index)

    def tail_after(self, physical_offset: int) -> list[FileRange]:
        """The file ranges that ``truncate_after`` would drop, to be saved first."""
        keep = self._end_below(physical_offset) * QUEUE_ENTRY_SIZE
        end = self.max_index * QUEUE_ENTRY_SIZE
        ranges = []
        for mapped in self.files.files:
            start = max(keep, mapped.base_offset)
            stop = min(end, mapped.base_offset + mapped.size)
            if start < stop:
                ranges.append(FileRange(mapped.path, start - mapped.base_offset, stop - start))
        return ranges

    def truncate_after(self, physical_offset: int) -> int:
        """Drop the trailing entries at or above a physical offset; returns their number.

        Files are unlinked or zeroed from there on, never shortened: readers may map them.
        """
        keep = self._end_below(physical_offset)
        dropped = self.max_index - keep
        if not dropped:
            return 0
        start, end = keep * QUEUE_ENTRY_SIZE, self.max_index * QUEUE_ENTRY_SIZE
        self._detach()
        self._remove_from(keep)
        last = self.files.last
        if last is not None and start < last.end_offset:
            position = start - last.base_offset
            length = min(last.size, end - last.base_offset) - position
            last.view[position : position + length] = bytes(length)
            self._changed.add(last)
        self.window.next_index = keep
        self._minimum.set(min(self._minimum.last, keep))
        return dropped

    def mark_dirty(self, physical_offset: int) -> None:
        """Make the next flush write all entries of records at or above an offset, and all units.

        An earlier process may have failed to sync them and left their pages clean. Raises OSError
        when the disk is full.
        """
        if self.ext is not None and physical_offset <= 0:
            self.ext.mark_dirty()
        start = self.find_by_physical(physical_offset) * QUEUE_ENTRY_SIZE
        for mapped in self.files.files:
            low = max(0, start - mapped.base_offset)
            high = min(mapped.size, self.max_index * QUEUE_ENTRY_SIZE - mapped.base_offset)
            if low < high:
                mapped.mark_dirty(low, high - low)
                self._changed.add(mapped)

    def destroy(self) -> None:
        """Unlink every file, and make no more; readers that map one keep it."""
        self.files.end_ahead()
        if self.ext is not None:
            self.ext.destroy()
        self._remove_all()

    # search -------------------------------------------------------------------------------

    def find_by_time(
        self, timestamp_ms: int, log: LogView, shift_ms: Callable[[int], int] = lambda _: 0
    ) -> int:
        """Find the first entry stored at or after a time; ``max_index`` when there is none.

        Entries without a readable record are skipped. ``shift_ms`` is added to the time of the
        record at a physical offset; the sums never decrease.
        """

        def reached(entry: QueueEntry) -> bool | None:
            stored = None if entry.is_hole else store_time(entry.physical_offset, log)
            if stored is None:
                return None
            return stored + shift_ms(entry.physical_offset) >= timestamp_ms

        return search(self, self.min_index, reached)

    def find_by_physical(self, physical_offset: int) -> int:
        """Find the first entry at or above a physical offset; ``max_index`` when there is none."""
        return search(
            self,
            self.first_index,
            lambda entry: None if entry.is_hole else entry.physical_offset >= physical_offset,
        )

    def max_physical_end(self) -> int:
        """The end of the record that the last real entry names; 0 when there is none."""
        real = (entry for _, entry in self.last_entries() if not entry.is_hole)
        last = next(real, None)
        return last.physical_offset + last.size if last is not None else 0

    def fill_holes(self) -> int:
        """Fill the missing entries before ``max_index`` whose records the log has no more; returns
        their number.

        At an entry without a size a broker's recovery would end the queue, and from a pre-blank one
        after others its pull skips to the next file.

        Reads each entry a bounded number of times.
        """
        filled = 0
        close_gaps(self)
        files, end = self.files.files, self.max_index
        begin = first_not_blank(files, end)
        for index in sorted({*without_size(files, begin, end), *self._torn_fillers(begin)}):
            filler = self._filler(index)
            if self._read(index) != (entry := QueueEntry(*ENTRY.unpack(filler))):
                self._overwrite(index, entry)
                filled += 1
        return filled

    def _torn_fillers(self, begin: int) -> Iterator[int]:
        """Yield the entries from ``begin`` on in two sectors of which one was lost when a filler
        was stored."""
        before, reached = None, begin
        for index in out_of_order(self.files.files, begin, self.max_index):
            before = self.last_before(index, reached) or before
            entry, reached = self._read(index), index
            if entry is None or before is None:
                continue
            is_other = entry.physical_offset in (0, before.physical_offset)
            if self._is_torn(index, entry, before) or (is_other and entry[:2] != before[:2]):
                yield index

    def _is_torn(self, index: int, found: QueueEntry, due: QueueEntry) -> bool:
        """Whether only one of two sectors of an entry was written, over zeros or a filler."""
        blanks = bytes(QUEUE_ENTRY_SIZE), PRE_BLANK, self._filler(index)
        position = index * QUEUE_ENTRY_SIZE % self.file_size
        return is_torn(position, ENTRY.pack(*found), ENTRY.pack(*due), blanks)

    def _lost_first_sector(self, index: int, entry: QueueEntry) -> bool:
        """Whether an entry in two sectors lost its offset: it is below the one before."""
        if not sector_split(index * QUEUE_ENTRY_SIZE % self.file_size):
            return False
        before = self.last_before(index)
        return before is not None and entry.physical_offset < before.physical_offset

    def last_before(self, index: int, first: int | None = None) -> QueueEntry | None:
        """The last entry before another, from ``first`` on, that is no hole."""
        first = self.first_index if first is None else first
        entries = map(self._read, range(index - 1, first - 1, -1))
        return next((entry for entry in entries if entry is not None and not entry.is_hole), None)

    # positions ----------------------------------------------------------------------------

    def _find_end(self) -> int:
        for mapped in reversed(self.files.files):
            used = last_nonzero(mapped.view, 0, mapped.next_data, SMALL_CHUNK)
            if used:
                return (mapped.base_offset + used - 1) // QUEUE_ENTRY_SIZE + 1
        return self.first_index

    def _read(self, index: int) -> QueueEntry | None:
        mapped = self.files.find(index * QUEUE_ENTRY_SIZE)
        if mapped is None:
            return None
        try:
            fields = ENTRY.unpack_from(mapped.view, index * QUEUE_ENTRY_SIZE - mapped.base_offset)
        except struct.error:  # the file was removed meanwhile
            return None
        return QueueEntry(*fields)

    def _remove_from(self, index: int) -> None:
        """Unlink the files from an entry on, except the one whose name alone shows that the queue
        does not begin at 0: without it, offsets would be assigned a second time."""
        self.files.remove_from(index * QUEUE_ENTRY_SIZE, keep_first=self.first_index > 0)

    def _remove_all(self) -> None:
        self._detach()
        self.files.remove_from(0)
        self.window.next_index = 0
        self._minimum.set(0)

    def _end_below(self, physical_offset: int) -> int:
        """The position after the last entry below an offset that names a record.

        The last entry is never a filler or pre-blank: after a pre-blank one a broker returns no
        entries.
        """
        end, last = self.first_index, None
        for index, entry in self.last_entries():
            if entry.is_hole or entry.physical_offset >= physical_offset:
                continue
            if self._lost_first_sector(index, entry):
                continue
            # Of the entries of one record, all but the first are fillers; zeros may lie between.
            if last is not None and entry[:2] != last[:2]:
                break
            end, last = index + 1, entry
        return end

    def _begin(self, index: int) -> None:
        """Create the first file of an empty queue, pre-blank up to ``index``."""
        offset = index * QUEUE_ENTRY_SIZE
        base = offset - offset % self.file_size
        mapped = self.files.add(base)
        mapped.ensure_reserved(offset - base)
        mapped.view[: offset - base] = PRE_BLANK * ((offset - base) // QUEUE_ENTRY_SIZE)
        mapped.wrote_position = offset - base
        self.window.next_index = index
        self._minimum.set(index)

    def _may_reach(self, index: int, physical_offset: int) -> bool:
        """Whether the log before the record has room for as many records as entries are missing."""
        if not 0 <= index * QUEUE_ENTRY_SIZE < _OFFSET_MAX - self.file_size:
            return False
        missing = index - self.max_index
        if not self.files.files or not missing:
            return True
        return has_room(missing, self.max_physical_end(), physical_offset)

    def _begins_anew(self, index: int, physical_offset: int) -> bool:
        """Whether the queue begins at an entry, and not where its files begin.

        A power cut may leave a later file, empty, and take those before it. A damaged queue offset
        looks the same: when the next record is in the later file after all, that one is right.
        """
        named = self._named
        if 0 <= index < self.first_index == self.max_index:
            self._named = self.first_index
            return True
        if not self.max_index <= named <= index < named + self.entries_per_file:
            return False
        return not self._may_reach(index, physical_offset)

    def _put_below(self, index: int, entry: QueueEntry, unit: ExtUnit | None) -> Put:
        found = self.entry(index)
        if found is None and make_again(self, index, entry.physical_offset):
            found = self.entry(index)
        if found is None:
            return Put.REFUSED
        result = self._judge(index, found, entry, unit)
        if result is Put.FILLED:
            self._overwrite(index, self._with_unit(entry, unit))
        if result is not Put.DIFFERENT:
            self.due_fillers.note_put(index)
        return result

    def _judge(self, index: int, found: QueueEntry, entry: QueueEntry, unit: ExtUnit | None) -> Put:
        """Whether an entry is there, has to be filled, or is another one."""
        due = entry._replace(tags_code=found.tags_code) if found.is_ext_address else entry
        if self._is_torn(index, found, entry) or self._is_torn(index, found, due):
            return Put.FILLED
        if found[:2] == entry[:2]:
            is_whole = not found.is_ext_address or self._unit_matches(found.tags_code, unit)
            return Put.PRESENT if is_whole else Put.FILLED
        if found.is_hole or self.is_filler(index) or self.due_fillers.has(index):
            return Put.FILLED
        return Put.DIFFERENT

    def _unit_matches(self, address: int, unit: ExtUnit | None) -> bool:
        """Whether the unit at an address agrees with a unit's message."""
        return unit is None or (self.ext is not None and self.ext.matches(address, unit))

    def _overwrite(self, index: int, entry: QueueEntry) -> None:
        mapped = self.files.find(index * QUEUE_ENTRY_SIZE)
        assert mapped is not None
        position = index * QUEUE_ENTRY_SIZE - mapped.base_offset
        mapped.ensure_reserved(position + QUEUE_ENTRY_SIZE)
        ENTRY.pack_into(mapped.view, position, *entry)
        self._changed.add(mapped)

    def _filler(self, index: int) -> bytes:
        """The bytes that replace the missing entry ``index``."""
        before = self.entry(index - 1)
        return PRE_BLANK if before is None or before.is_missing else ENTRY.pack(*before)

    def _append(self, packed: bytes) -> None:
        window = self.window
        if not window.first_index <= self.max_index < window.first_index + window.entries:
            self.make_room()
        mapped = self._attached
        assert mapped is not None
        position = self.max_index * QUEUE_ENTRY_SIZE - mapped.base_offset
        mapped.view[position : position + QUEUE_ENTRY_SIZE] = packed
        window.next_index += 1

    def _attach(self, mapped: MappedFile, position: int) -> None:
        mapped.ensure_reserved(min(mapped.size, position + QUEUE_ENTRY_SIZE))
        self._attached = mapped
        first = mapped.base_offset // QUEUE_ENTRY_SIZE
        self.window.attach(mapped.view, first, mapped.reserved // QUEUE_ENTRY_SIZE)

    def _detach(self) -> None:
        self._attached = None
        self.window.attach(None, 0, 0)
