"""The log as bytes from an offset on, for replicas.

Used by store-writer, which sends them to RocketMQ's slaves as they stand. They are readable records
and the rests of segments behind them, and need not be on disk yet.
"""

from __future__ import annotations

from mqstore.storage.errors import RecordExpired
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.seams import FileSystem


class LogStream:
    """Reads the log from any offset, never across a segment or beyond ``end``. Thread-safe."""

    def __init__(self, log: CommitLog, files: FileSystem, segment_size: int) -> None:
        self._log = log
        self._files = files
        self._segment_size = segment_size

    @property
    def start(self) -> int:
        """The first offset of the oldest segment."""
        return self._log.min_offset

    @property
    def end(self) -> int:
        """The end of the readable bytes."""
        return self._log.max_offset

    @property
    def last_segment(self) -> int:
        """The first offset of the segment that ``end`` is in."""
        end = self.end
        return max(self.start, end - end % self._segment_size)

    def take(self, offset: int, size: int) -> bytes | None:
        """Return up to ``size`` bytes if they need no disk, else None. No bytes at the end.

        Raises RecordExpired below ``start``.
        """
        size = self._size_at(offset, size)
        if not size:
            return b""
        if self._log.commits is not None or not self._log.end.has_in_memory(offset, size):
            return None
        found = self._log.select(offset, size)
        return None if found is None else bytes(found)

    def read(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes, which may wait for the disk but not with the GIL. No bytes at
        the end. Raises RecordExpired below ``start``, OSError.
        """
        size = self._size_at(offset, size)
        if not size:
            return b""
        segment = self._log.files.find(offset)
        if segment is None:
            raise self._expired(offset)
        is_newest = segment.end_offset > self.end
        at = offset - segment.base_offset
        try:
            return self._files.read_range(segment.path, at, size, keep=is_newest)
        except FileNotFoundError:
            raise self._expired(offset) from None

    def _size_at(self, offset: int, size: int) -> int:
        if offset < self.start:
            raise self._expired(offset)
        return max(
            0, min(size, self._segment_size - offset % self._segment_size, self.end - offset)
        )

    def _expired(self, offset: int) -> RecordExpired:
        return RecordExpired(f"the log, from {self.start}, has no segment of offset {offset} now")
