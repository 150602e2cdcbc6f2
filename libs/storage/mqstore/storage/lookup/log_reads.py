"""Reads one record of the log with all checks, and explains why there is none.

The bytes are copied and checked; then the epoch is compared. If recovery changed bytes in between,
the record is read again.

Called from ``lookups``. Every method may be called from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from mqstore.storage._kernel import RecordSearch
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    OffsetInsideRecord,
    OffsetOutOfRange,
    RecordBlockCorrupt,
    RecordError,
    RecordExpired,
    StorageError,
    StoreNotOpen,
)
from mqstore.storage.layout import BLANK_RECORD_SIZE, MAGIC_BLANK
from mqstore.storage.lookup.own_checks import is_proved
from mqstore.storage.lookup.views import Bounds, LogView, QueuesView
from mqstore.storage.metadata.block_guard import BlockGuard

_TRIES: Final = 8
_REACHES: Final = (64 << 10, 8 << 20)
"""Bytes before an offset in which the record that contains the offset is searched."""
REPORTED_BYTES_MAX: Final = (4 << 20) + (64 << 10)
"""Maximum bytes of one unreadable record whose blocks are reported: a body of 4 MiB and the rest of
its record. Its size may be what is damaged."""
_SIZE_AND_MAGIC = struct.Struct(">iI")

P = ParamSpec("P")
T = TypeVar("T")


class LogReads:
    """Reads the log as one process sees it."""

    def __init__(
        self, log: LogView, queues: QueuesView, bounds: Bounds, blocks: BlockGuard
    ) -> None:
        self._log = log
        self._queues = queues
        self._bounds = bounds
        self._blocks = blocks

    def read_consistently(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``read``, again while a recovery changes the store; returns or raises its result.

        Raises StoreNotOpen when the store keeps changing.
        """
        for _ in range(_TRIES):
            epoch = self._blocks.renew()
            if self._bounds.is_changing:
                continue
            failure: StorageError | None = None
            try:
                answer = read(*args, **kwargs)
            except StorageError as error:
                failure = error
            if self._bounds.epoch != epoch:
                continue
            if failure is not None:
                raise failure
            return answer
        raise StoreNotOpen("recovering", "the store is being recovered; try again")

    def read(
        self, offset: int, expected_size: int | None = None, *, with_body: bool = True
    ) -> Record:
        """Read the record that begins at a physical offset.

        Raises RecordExpired, OffsetOutOfRange (beyond the end, no record begins there, or not one
        of the expected size), RecordError by its defect.
        """
        epoch = self._blocks.epoch
        place = self._log.view_from(offset)
        if place is None or place[1] >= place[2]:
            raise self._unreadable_error(offset, None)
        view, position, end = place
        try:
            found = record.decode(
                view,
                position,
                end,
                physical_offset=offset,
                verify_body=with_body,
                with_body=with_body,
            )
        except RecordError as error:
            raise self._unreadable_error(offset, error) from None
        doubt = self._blocks.check(view, position, offset, found.size, epoch)
        if doubt is not None:
            found = self._self_checked(view, position, end, offset, doubt)
        if expected_size is not None and found.size != expected_size:
            raise OffsetOutOfRange(
                f"record at offset {offset} has {found.size} bytes; its queue says {expected_size}"
            )
        return record.message_of(found) if with_body else found

    def _self_checked(
        self, view: memoryview, position: int, end: int, offset: int, doubt: tuple[int, int]
    ) -> Record:
        """Decode a record that its own checks must prove.

        Raises its RecordError, or RecordBlockCorrupt where the checks do not prove it.
        """
        found = record.decode_self_checked(view, position, end, physical_offset=offset)
        if not (found.is_tombstone or is_proved(found, self._queues)):
            raise RecordBlockCorrupt(offset, *doubt)
        return found

    def size_and_magic(self, offset: int) -> tuple[int, int]:
        """Read the first two fields of the record at an offset. Raises as ``read``."""
        end = self._log.max_offset
        if not 0 <= offset < end:
            raise OffsetOutOfRange(f"offset {offset} is not below the log's end, {end}")
        head = self._bytes_at(offset, BLANK_RECORD_SIZE)
        if head is None:
            raise self._absence_error(offset)
        size, magic = _SIZE_AND_MAGIC.unpack_from(head)
        return size, magic

    def _unreadable_error(self, offset: int, error: RecordError | None) -> StorageError:
        """Why there is no record: none can begin there, or the record's own defect."""
        size, magic = self.size_and_magic(offset)
        if (holder := self._holder(offset)) is not None:
            return OffsetInsideRecord(offset, holder)
        if magic == MAGIC_BLANK:
            return OffsetOutOfRange(f"no record at offset {offset}: it is the end of a segment")
        if error is not None:
            self._report(offset, size)
        if error is None or size < BLANK_RECORD_SIZE or self._bytes_at(offset, size) is None:
            return self._absence_error(offset)
        return error

    def _report(self, offset: int, size: int) -> None:
        """Report the blocks of a record that cannot be read."""
        place = self._log.view_from(offset)
        if place is not None:
            _, position, end = place
            length = max(1, min(size, REPORTED_BYTES_MAX, end - position))
            self._blocks.report(offset - position, offset, offset + length)

    def _bytes_at(self, offset: int, size: int) -> bytes | None:
        place = self._log.view_from(offset)
        if place is None or place[1] + size > place[2]:
            return None
        view, position, _ = place
        return bytes(view[position : position + size])

    def _holder(self, offset: int) -> int | None:
        """The physical offset of the whole record that contains an offset, or None."""
        place = self._log.view_from(offset)
        if place is None:
            return None
        view, at, end = place
        base = offset - at
        search = RecordSearch(view, base, True)
        for reach in _REACHES:
            position = max(0, at - reach)
            while 0 <= (position := search.find(position, end, at)) < at:
                size = search.check(position, end)[1]
                if position + size > at:
                    return base + position
                position += size
                if position == at:
                    return None
        return None

    def _absence_error(self, offset: int) -> StorageError:
        """Why an offset has no record. Checked last: a segment may be removed during the read."""
        if offset < self._log.min_offset:
            return RecordExpired(f"offset {offset} is below the log's first, it has expired")
        return OffsetOutOfRange(f"no record begins at offset {offset}")
