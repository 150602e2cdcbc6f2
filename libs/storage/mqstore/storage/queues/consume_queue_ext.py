"""ConsumeQueueExt: units that extend queue entries, in ``consumequeue_ext/TOPIC/QUEUEID/``.

The entry's tagsCode is the address of its unit. Units follow one another; where one does not fit
before the last 4 bytes of a file, a size of -1 ends it. Source: ConsumeQueueExt of 4.9.7 and 5.4.0.
As there, a missing unit costs a read of the log; an existing one must agree with the message.

One thread at a time writes (the dispatcher, under its lock); any thread may read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqstore.storage._kernel import walk_units
from mqstore.storage.codec import ext_unit
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.layout import (
    EXT_ADDRESS_MAX,
    EXT_ADDRESS_MIN,
    EXT_END_SIZE,
    EXT_UNIT_SIZE_MAX,
)
from mqstore.storage.system.sparse import SMALL_CHUNK, last_nonzero

if TYPE_CHECKING:
    from mqstore.storage.mapped.mapped_file import MappedFile
    from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayFile

_OFFSET_MAX: Final = EXT_ADDRESS_MAX - EXT_ADDRESS_MIN


class ConsumeQueueExt:
    """The units of one topic-queue. See the module for the format and threads."""

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files
        self.is_begun = False
        """Whether it is verified that the next unit may follow the last one."""
        self._least_end = 0
        self._changed: set[MappedFile] = set()
        """Files that were changed below the flushed position."""

    def load(self) -> list[StrayFile]:
        """Map the files and find the position of the next unit; returns the stray files."""
        strays = self.files.load()
        last = self.files.last
        if last is not None:
            last.set_end(walk_units(last.view, 0))
        return strays

    def unit(self, address: int) -> ExtUnit | None:
        """Decode the unit at an address; None where there is no whole one."""
        place = self.units(address)
        if place is None:
            return None
        view, base = place
        return ext_unit.decode(view, address - EXT_ADDRESS_MIN - base)

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file that holds an address, and its first address."""
        mapped = self.files.find(address - EXT_ADDRESS_MIN)
        return None if mapped is None else (mapped.view, mapped.base_offset)

    def matches(self, address: int, unit: ExtUnit) -> bool:
        """Whether the unit at an address agrees with a unit's message.

        A crash may have left an address without its unit, and another entry's unit may have been
        stored there since.
        """
        found = self.unit(address)
        if found is None or found[:2] != unit[:2]:
            return False
        if len(found.bitmap) != len(unit.bitmap):
            return True  # no reader uses it
        return not int.from_bytes(unit.bitmap) & ~int.from_bytes(found.bitmap)

    # writing ------------------------------------------------------------------------------

    def begin(self, last_address: int | None) -> None:
        """Prepare for the first ``put``; ``last_address`` is the last one that an entry names.

        When its unit was lost, new units go to a later file, so that no entry ever names another's
        unit.
        """
        self.is_begun = True
        if last_address is not None and last_address - EXT_ADDRESS_MIN >= self.files.max_offset:
            offset, size = last_address - EXT_ADDRESS_MIN, self.files.file_size
            self._least_end = offset - offset % size + size

    def put(self, unit: ExtUnit) -> int | None:
        """Store a unit; returns its address, or None when addresses or files are too small for it.

        Raises OSError when the disk is full.
        """
        if unit.size > min(EXT_UNIT_SIZE_MAX, self.files.file_size - EXT_END_SIZE):
            return None
        end = max(self.files.max_offset, self._least_end)
        if end + self.files.file_size > _OFFSET_MAX:
            return None
        mapped = self._with_room(end, unit.size)
        position = mapped.wrote_position
        self._store(mapped, position, ext_unit.encode(unit))
        return EXT_ADDRESS_MIN + mapped.base_offset + position

    def _with_room(self, end: int, size: int) -> MappedFile:
        """The file for a unit of that size; the previous file is ended."""
        last = self.files.last
        if last is None:
            return self.files.add(end)
        if end < last.end_offset and end + size + EXT_END_SIZE <= last.end_offset:
            return last
        if last.wrote_position + len(ext_unit.END) <= last.size:
            self._store(last, last.wrote_position, ext_unit.END)
        last.wrote_position = last.size
        return self.files.add(max(end, last.end_offset))

    def _store(self, mapped: MappedFile, position: int, data: bytes) -> None:
        end = position + len(data)
        mapped.ensure_reserved(end)
        mapped.view[position:end] = data
        mapped.wrote_position = end

    # recovery --------------------------------------------------------------------------------

    def trim(self) -> None:
        """After a crash: end after the last unit before which all are whole, and zero the rest.

        A broker's recovery does the same. Files are never shortened: readers may map them.
        """
        for mapped in self.files.files:
            end = walk_units(mapped.view, 0)
            if mapped is not self.files.last and _is_ended(mapped.view, end):
                continue
            self.files.remove_from(mapped.end_offset)
            used = last_nonzero(mapped.view, end, mapped.next_data, SMALL_CHUNK)
            if used > end:
                mapped.view[end:used] = bytes(used - end)
                self._changed.add(mapped)
            mapped.set_end(end)
            break

    def delete_before(self, address: int) -> int:
        """Unlink files that end below an address, never the last; returns their number."""
        offset = address - EXT_ADDRESS_MIN
        expired = [file for file in self.files.files[:-1] if file.end_offset <= offset]
        return self.files.remove_first(len(expired)) if expired else 0

    @property
    def may_be_dirty(self) -> bool:
        """Whether ``flush`` may have something to sync."""
        return self.files.max_offset != self.files.flushed_where or bool(self._changed)

    def flush(self, least_pages: int = 0) -> bool:
        """Sync as ``ConsumeQueue.flush``."""
        changed, self._changed = self._changed, set()
        for mapped in sorted(changed, key=lambda file: file.base_offset):
            mapped.flushed_position = 0
            mapped.flush()
        return self.files.flush(least_pages) or bool(changed)

    def mark_dirty(self) -> None:
        """Make the next flush write all units, which an earlier process may have failed to sync.

        Raises OSError when the disk is full.
        """
        for mapped in self.files.files:
            end = walk_units(mapped.view, 0)
            if end:
                mapped.mark_dirty(0, end)
                self._changed.add(mapped)

    def destroy(self) -> None:
        """Unlink every file; readers that map one keep it."""
        self.files.remove_from(0)


def _is_ended(view: memoryview, end: int) -> bool:
    return bytes(view[end : end + len(ext_unit.END)]) == ext_unit.END
