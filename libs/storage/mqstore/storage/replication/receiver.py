"""Receives a leader's log: bytes as they stand, at the leader's offsets, in pieces of any length.

The bytes come as RocketMQ's HA protocol carries them: a piece ends anywhere, also inside a record.
The log on disk has whole records only: the begin of an incomplete record stays in memory, where it
is bounded by maxMessageSize, and is requested again after a reconnection. So a kill leaves what a
kill of a leader leaves, and a body that holds a forged record is never taken for the log. Source:
HAService and DefaultMessageStore.appendToCommitLog of 4.9.7, which check nothing but the offset.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from typing import Final

from mqstore.storage._kernel import Defect, check_record, check_run, count_topics, is_zero
from mqstore.storage.config import StoreConfig
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import LeaderLogRefused, StoreNotWritable
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_FIXED_SIZE,
)
from mqstore.storage.log.follower_log import FollowerLog
from mqstore.storage.log_lines import bounded_log

_HEAD: Final = struct.Struct(">iI")
"""TOTALSIZE, MAGICCODE."""
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})
_OTHER_PARTS_MAX: Final = 64 << 10
"""Bytes of a record beside a body of maxMessageSize: fixed fields, topic, properties."""
_ACCEPTED: Final = frozenset({Defect.HOST_INVALID, Defect.PROPERTIES_MALFORMED})
"""Defects that a record had when it was put: a broker stores such fields as they come."""
_NOTHING: Final = memoryview(b"")

_log = bounded_log(__name__)


class LogReceiver:
    """Appends a leader's bytes to the log of one store. Thread-safe."""

    def __init__(
        self,
        log: FollowerLog,
        dispatcher: Dispatcher,
        config: StoreConfig,
        changing: Callable[[], AbstractContextManager[None]],
        dispatch: Callable[[int], None],
        require_none_failed: Callable[[], None],
    ) -> None:
        """``changing`` is ``StatePage.changing``; ``dispatch`` dispatches up to an offset, now or
        in the background; ``require_none_failed`` raises StoreFailed after a failure."""
        self._records = log
        self._dispatcher = dispatcher
        self._segment_size = config.mapped_file_size_commit_log
        self._record_size_max = config.max_message_size + _OTHER_PARTS_MAX
        self._changing = changing
        self._dispatch = dispatch
        self._require_none_failed = require_none_failed
        self._lock = Lock()
        self._partial = bytearray()
        """The begin of a record that is not complete."""
        self._missing = 0
        """Bytes that the begin of a record lacks, as far as is known."""
        self._blank_copied = 0
        self._blank_size = 0
        """Bytes of the blank record that is being received; 0 when none is."""
        self._suspect: tuple[int, int] | None = None
        """Offset and CRC of a damaged record that was refused once."""
        self.damaged = 0
        """Number of records that were taken although damaged, as the leader has them so."""
        self._topics: dict[bytes, list[int]] = {}
        """Records and bytes by topic, since they were taken last."""
        self._closed = False

    @property
    def offset(self) -> int:
        """The physical offset of the next byte; the log may end below it, within a record."""
        return self._records.max_offset + len(self._partial) + self._blank_copied

    @property
    def end(self) -> int:
        """The end of the whole records: the log's own end."""
        return self._records.max_offset

    def has_room(self, size: int) -> bool:
        """Whether the next ``size`` bytes are in the last segment, which is there."""
        position = self.offset % self._segment_size
        return position > 0 and position + size <= self._segment_size

    def restart(self) -> int:
        """Forget the begin of an incomplete record: the next byte is that of the log's end, which
        is returned. For a new connection to a leader."""
        with self._lock:
            self._drop_partial()
            return self._records.max_offset

    def append(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Append a leader's bytes, the first of which is at physical ``offset`` there; returns the
        end of the whole records, which are readable, not yet durable.

        Raises LeaderLogRefused, SegmentCreationFailed, StoreNotWritable, StoreFailed. Whole records
        before the refused bytes may be in the log then; the next bytes must begin at its ``end``.
        """
        with self._lock:
            self._require_open()
            try:
                left = memoryview(data)
                self._require_next(offset, has_data=bool(left))
                while left:
                    left = self._take(left)
            except BaseException:
                self._drop_partial()
                raise
            end = self._records.max_offset
        if end > self._dispatcher.position:
            self._dispatch(end)
        return end

    def take_counts(self) -> dict[bytes, list[int]]:
        """Return the records and bytes by topic that were appended since the last call."""
        with self._lock:
            found, self._topics = self._topics, {}
            return found

    def close(self) -> None:
        """Wait for a running ``append``, and refuse later ones."""
        with self._lock:
            self._closed = True
            self._drop_partial()

    # under the lock

    def _require_open(self) -> None:
        self._require_none_failed()
        if self._closed:
            raise StoreNotWritable("closing", "the store is closing")

    def _require_next(self, offset: int, *, has_data: bool) -> None:
        """Raise LeaderLogRefused unless the log continues at ``offset``; an empty one begins with
        the first bytes."""
        if offset == self.offset:
            return
        if self._records.files.last is None and not self._partial:
            if has_data:
                self._begin_at(offset)
            return
        raise LeaderLogRefused(
            "offset",
            f"the leader's bytes begin at offset {offset}, and this log ends at {self.offset}: the "
            "two logs differ, or the leader has deleted what this one lacks; nothing was changed. "
            "Follow into an empty directory, or name the leader that this log was copied from",
        )

    def _begin_at(self, offset: int) -> None:
        if offset % self._segment_size:
            raise LeaderLogRefused(
                "segment-size",
                f"the leader's log begins at offset {offset}, which is no multiple of this store's "
                f"mappedFileSizeCommitLog {self._segment_size}: set it as on the leader",
            )
        with self._changing():
            self._dispatcher.begin_at(offset)
            self._records.begin_at(offset)

    def _drop_partial(self) -> None:
        self._partial = bytearray()
        self._missing = self._blank_copied = self._blank_size = 0

    def _take(self, data: memoryview) -> memoryview:
        """Take some bytes, at least one; returns the others."""
        if self._blank_size:
            return self._take_blank(data)
        if not self._partial:
            return self._take_records(data)
        part, left = data[: self._missing], data[self._missing :]
        self._partial += part
        self._missing -= len(part)
        if not self._missing:
            known, self._partial = self._partial, bytearray()
            self._take_records(memoryview(known))
        return left

    @property
    def _room(self) -> int:
        """Bytes of the segment after the log's end; of the next segment where that is full."""
        return self._segment_size - self._records.max_offset % self._segment_size

    def _take_records(self, data: memoryview) -> memoryview:
        """Take whole records, and keep the begin of one that is not complete; returns bytes that
        follow a record in the way of which something stands."""
        offset = self._records.max_offset
        _, end, _, timestamp_ms = check_run(
            data, 0, min(len(data), self._room), offset, verify_body=True, max_records=len(data)
        )
        if end:
            self._records.copy(data[:end])
            self._records.count(end, timestamp_ms)
            count_topics(data, 0, end, self._topics)
        left = data[end:]
        return self._take_other(left) if left else left

    def _take_other(self, data: memoryview) -> memoryview:
        """Take the begin of an incomplete record, of a blank one, or one damaged record."""
        if len(data) < _HEAD.size:
            return self._keep(data, _HEAD.size - len(data))
        size, magic = _HEAD.unpack_from(data)
        if magic == MAGIC_BLANK:
            self._begin_blank(size)
            return self._take_blank(data)
        self._require_record(size, magic)
        if len(data) < size:
            return self._keep(data, size - len(data))
        self._take_damaged(data[:size])
        return data[size:]

    def _keep(self, data: memoryview, missing: int) -> memoryview:
        self._partial = bytearray(data)
        self._missing = missing
        return _NOTHING

    def _require_record(self, size: int, magic: int) -> None:
        offset = self._records.max_offset
        if magic not in _MAGICS or size < RECORD_FIXED_SIZE:
            raise LeaderLogRefused(
                "damaged",
                f"the leader's bytes at offset {offset} are no record (size {size}, magic "
                f"{magic:08x}): its log is damaged there, or is another one than this was copied "
                "from; run `mqstore store verify` on it",
            )
        if size + BLANK_RECORD_SIZE > self._room:
            raise LeaderLogRefused(
                "segment-size",
                f"the leader's record at offset {offset} has {size} bytes, and its segment here "
                f"has {self._room}: mappedFileSizeCommitLog {self._segment_size} must be as on "
                "the leader",
            )
        if size > self._record_size_max:
            raise LeaderLogRefused(
                "record-size",
                f"the leader's record at offset {offset} has {size} bytes, more than "
                f"maxMessageSize allows here ({self._record_size_max} with its other parts): set "
                "it as on the leader",
            )

    def _begin_blank(self, size: int) -> None:
        if size != self._room:
            raise LeaderLogRefused(
                "segment-size",
                f"the leader's segment ends {size} bytes after offset {self._records.max_offset}, "
                f"and this store's {self._room} after it: mappedFileSizeCommitLog "
                f"{self._segment_size} must be as on the leader",
            )
        self._blank_size, self._blank_copied = size, 0

    def _take_blank(self, data: memoryview) -> memoryview:
        """Take bytes of a blank record, which is all of the segment's rest: copied, not kept."""
        left = self._blank_size - self._blank_copied
        part, behind = data[:left], data[left:]
        if not is_zero(part):  # a segment is zero behind its end
            self._records.copy(part, self._blank_copied)
        self._blank_copied += len(part)
        if self._blank_copied == self._blank_size:
            self._records.count(self._blank_size)
            self._blank_size = self._blank_copied = 0
        return behind

    def _take_damaged(self, record: memoryview) -> None:
        """Take a record that is complete, and not whole, if the leader really has it so: that is
        known once the same bytes have come twice."""
        offset = self._records.max_offset
        defect, _ = check_record(record, 0, len(record), offset, True)
        mark = offset, zlib.crc32(record)
        is_known = mark == self._suspect and defect is not Defect.MISPLACED
        if defect not in _ACCEPTED and not is_known:
            self._suspect = mark
            raise LeaderLogRefused(
                "damaged",
                f"the leader's record at offset {offset} is damaged ({defect.name.lower()}): it is "
                "requested again, and taken if the same bytes come once more",
            )
        if defect not in _ACCEPTED:
            self.damaged += 1
            _log.error("the leader's record at offset %d is damaged, and copied unchanged", offset)
        self._records.copy(record)
        self._records.count(len(record))
