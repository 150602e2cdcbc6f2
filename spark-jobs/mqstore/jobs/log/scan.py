"""Reads all records of a range in pieces of bounded size, and skips stretches without a record.

After a damaged record the scan continues at the end that its lengths give, if they are consistent,
else at the next record that a queue entry names, else at the end of the range. It never searches
the bytes for a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.jobs.log.source import LogRange, LogReader
from mqstore.storage.formats import BLANK_RECORD_SIZE, Defect, RecordColumns, defect_error

CHUNK_SIZE: Final = 8 << 20
"""Bytes read at a time; a record that is longer is read whole."""
ROWS_MAX: Final = 65_536
"""Rows of one batch."""


@dataclass(frozen=True, slots=True)
class CorruptStretch:
    """Bytes of the log that are no whole record."""

    physical_offset: int
    size: int
    segment: str
    defect: str
    """``body-corrupt``, ``lengths-disagree`` …, or ``tombstone``: a recovery of ours found it
    unreadable, and put what stood there into quarantine."""
    detail: str


class RangeScan:
    """One pass over one range, into ``columns``. Not for several threads at once."""

    def __init__(
        self,
        reader: LogReader,
        part: LogRange,
        columns: RecordColumns,
        *,
        high: int,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        """Scan only records that begin before physical offset ``high``."""
        self._reader = reader
        self._part = part
        self._columns = columns
        self._stop = min(part.stop, high)
        self._chunk_size = chunk_size
        self._corrupt: list[CorruptStretch] = []
        self._held = memoryview(b"")
        """The bytes read last, which begin at ``_held_from``."""
        self._held_from = 0

    def steps(self) -> Iterator[list[CorruptStretch]]:
        """After each step take the rows from the columns; what was corrupt comes with the step."""
        offset, size = self._part.start, self._chunk_size
        while offset < self._stop:
            chunk = self._read(offset, size)
            defect, known, position = self._columns.add(
                chunk, 0, self._stop - offset, offset, ROWS_MAX
            )
            self._note_tombstones()
            offset, size = self._go_on(chunk, offset, position, defect, known)
            yield self._corrupt
            self._corrupt = []

    def _read(self, offset: int, size: int) -> memoryview:
        """Bytes from an offset on: ``size`` of them, or what is held where that is half as many:
        damage after damage does not read them again."""
        size = min(size, self._part.stop - offset)
        held = self._held[offset - self._held_from :]
        if 2 * len(held) < size or (len(held) < size and size != self._chunk_size):
            held = memoryview(self._reader.read(self._part.segment, offset, size))
            self._held, self._held_from = held, offset
        return held[:size]

    def _go_on(
        self, chunk: memoryview, offset: int, position: int, defect: Defect, known: int
    ) -> tuple[int, int]:
        """Return the offset at which the scan continues, and the number of bytes to read."""
        at = offset + position
        is_cut = defect is Defect.TRUNCATED and offset + len(chunk) < self._part.stop
        if defect is Defect.NONE or (is_cut and position > 0):
            return at, self._chunk_size
        if is_cut:
            return self._whole(chunk, at)
        if self._ends(defect, at):
            return self._part.stop, 0
        return self._step_over(at, defect, known), self._chunk_size

    def _whole(self, chunk: memoryview, at: int) -> tuple[int, int]:
        """A record that is longer than a chunk; damage where a known one begins before its end."""
        total = int.from_bytes(chunk[:4])
        limit = self._reader.next(self._part.segment, at + 1, self._part.stop) or self._part.stop
        if at + total <= limit:
            return at, total
        self._note(at, limit - at, Defect.TRUNCATED)
        return limit, self._chunk_size

    def _ends(self, defect: Defect, at: int) -> bool:
        """Whether the segment has no more records; its last bytes may be too few for any."""
        if not self._part.ends_segment:
            return False
        return defect is Defect.BLANK or self._part.stop - at < BLANK_RECORD_SIZE

    def _step_over(self, at: int, defect: Defect, known: int) -> int:
        if known > 0 and defect is not Defect.BLANK:
            behind = at + known
        else:
            found = self._reader.next(self._part.segment, at + 1, self._part.stop)
            behind = self._part.stop if found is None else found
        self._note(at, behind - at, defect)
        return behind

    def _note(self, at: int, size: int, defect: Defect) -> None:
        if defect is Defect.BLANK:
            name, detail = "blank", "a blank record where the log goes on"
        else:
            name, detail = _name_of(defect), str(defect_error(defect, at))
        self._add(at, size, name, detail)

    def _note_tombstones(self) -> None:
        for at, size in self._columns.take_tombstones():
            self._add(at, size, "tombstone", "what stood here is in quarantine")

    def _add(self, at: int, size: int, name: str, detail: str) -> None:
        segment = self._part.segment.name
        self._corrupt.append(CorruptStretch(at, size, segment, name, detail))


def _name_of(defect: Defect) -> str:
    return defect.name.lower().replace("_", "-")
