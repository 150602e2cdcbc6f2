"""The commit log of a follower: its bytes are copied from its leader's log, at the same offsets.

Used by ``replication``. Bytes are copied behind the log's end first, where no reader looks, and
count once they are complete: after a kill at any point recovery finds whole records.
"""

from __future__ import annotations

from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.mapped.mapped_file import MappedFile


class FollowerLog(CommitLog):
    """A log to which one thread at a time copies bytes. Nothing is put while a leader is followed:
    ``MessageStore`` refuses puts."""

    def begin_at(self, offset: int) -> None:
        """Make a segment at physical ``offset`` the first of an empty log.

        That the log has nothing below ``offset`` is durable before the segment is there. Raises
        SegmentCreationFailed, OSError.
        """
        with self._lock:
            self._watermarks.note_expiry(offset)
            self._watermarks.set_min(offset)
            self._roll(None, offset)
            self._watermarks.set_max(offset)

    def copy(self, data: memoryview, ahead: int = 0) -> None:
        """Copy bytes to ``ahead`` bytes behind the log's end, within one segment.

        They are no part of the log before ``count``. Raises SegmentCreationFailed.
        """
        with self._lock:
            segment = self._segment_at_end()
            self._reserve(segment, ahead + len(data))
            start = self.end.position + ahead
            self._view[start : start + len(data)] = data

    def count(self, size: int, store_timestamp_ms: int = 0) -> None:
        """Make the next ``size`` copied bytes part of the log: whole records, or a blank one.

        ``store_timestamp_ms`` is that of the last record; 0 keeps the time before.
        """
        with self._lock:
            if store_timestamp_ms:
                self.end.last_store_timestamp_ms = store_timestamp_ms
            self._advance(self.end.position + size)

    def _segment_at_end(self) -> MappedFile:
        segment = self._segment
        if segment is None:
            return self._roll(None, 0)
        if self.end.position == segment.size:
            return self._roll(segment, segment.end_offset)
        return segment
