"""What a queue's entries leave out: units in files in ``consumequeue_ext/TOPIC/QUEUEID/``.

A unit has no place by number: the entry's tagsCode is its address. Units stand one behind another;
where one does not fit before the last 4 bytes of a file, a size of -1 ends it. Source:
ConsumeQueueExt of 4.9.7 and 5.4.0. A unit that is missing costs a look into the log, as there; one
that is there must be true of the message.

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

RESERVE_SIZE: Final = 256 << 10
"""Bytes of a file that get disk blocks at a time, ahead of what is written."""
_OFFSET_MAX: Final = EXT_ADDRESS_MAX - EXT_ADDRESS_MIN


class ConsumeQueueExt:
    """The units of one topic-queue. See the module for the format and who may write."""

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files
        self.is_begun = False
        """Whether it is known that the next unit may go where the last one ends."""
        self._least_end = 0
        self._changed: set[MappedFile] = set()
        """Files that were changed below what is flushed."""

    def load(self) -> list[StrayFile]:
        """Map the files that are there and find where the next unit goes; what is no file of ours
        is reported."""
        strays = self.files.load()
        last = self.files.last
        if last is not None:
            last.set_end(walk_units(last.view, 0))
        return strays

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at an address; None where there is no whole one."""
        place = self.units(address)
        if place is None:
            return None
        view, base = place
        return ext_unit.decode(view, address - EXT_ADDRESS_MIN - base)

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file that holds an address, and where it begins."""
        mapped = self.files.find(address - EXT_ADDRESS_MIN)
        return None if mapped is None else (mapped.view, mapped.base_offset)

    def says(self, address: int, unit: ExtUnit) -> bool:
        """Whether what stands at an address is true of a unit's message: a crash may have left an
        address before its unit, and another's unit may have come there since."""
        found = self.unit(address)
        if found is None or found[:2] != unit[:2]:
            return False
        if len(found.bitmap) != len(unit.bitmap):
            return True  # nobody will go by it
        return not int.from_bytes(unit.bitmap) & ~int.from_bytes(found.bitmap)

    # writing ------------------------------------------------------------------------------

    def begin(self, last_address: int | None) -> None:
        """Before the first ``put``: the last address that an entry has. Where its unit was lost,
        units go on in a file behind it, so that no entry ever finds another's."""
        self.is_begun = True
        if last_address is not None and last_address - EXT_ADDRESS_MIN >= self.files.max_offset:
            offset, size = last_address - EXT_ADDRESS_MIN, self.files.file_size
            self._least_end = offset - offset % size + size

    def put(self, unit: ExtUnit) -> int | None:
        """Store a unit; its address, or None where no address or file is wide enough for it.

        OSError: disk full.
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
        """The file that a unit of that size goes into; the one before is ended."""
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
        if end > mapped.reserved:
            mapped.ensure_reserved(min(mapped.size, position + RESERVE_SIZE))
        mapped.view[position:end] = data
        mapped.wrote_position = end

    # keeping it whole -----------------------------------------------------------------------

    def trim(self) -> None:
        """After a crash: end with the last unit before which all are whole, as a broker's recovery
        does, and zero what follows. Files are never shortened: readers may map them."""
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
        """Unlink files that end below an address, but never the last; how many files went."""
        offset = address - EXT_ADDRESS_MIN
        expired = [file for file in self.files.files[:-1] if file.end_offset <= offset]
        return self.files.remove_first(len(expired)) if expired else 0

    def flush(self, least_pages: int = 0) -> bool:
        """As ``ConsumeQueue.flush``."""
        changed, self._changed = self._changed, set()
        for mapped in sorted(changed, key=lambda file: file.base_offset):
            mapped.flushed_position = 0
            mapped.flush()
        return self.files.flush(least_pages) or bool(changed)

    def store_again(self) -> None:
        """Have the next flush write all units, though an earlier process left their pages clean:
        its sync may have failed. OSError: disk full."""
        for mapped in self.files.files:
            end = walk_units(mapped.view, 0)
            if end:
                mapped.store_again(0, end)
                self._changed.add(mapped)

    def destroy(self) -> None:
        """Unlink every file; readers that map one keep it."""
        self.files.remove_from(0)


def _is_ended(view: memoryview, end: int) -> bool:
    return bytes(view[end : end + len(ext_unit.END)]) == ext_unit.END
