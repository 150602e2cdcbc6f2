"""The commit log's files by byte range, for backups and jobs: durable bytes with checksums.

Only bytes below the durable watermark are served: no power cut removes them, and within an epoch
none of them changes. They are read without the maps. In every segment but the newest, pages that no
process uses are released again, so that reading all of an old log does not push its new end out of
memory.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.errors import SegmentExpired, SegmentUnknown, StoreNotOpen
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.metadata.block_files import BlockFiles, read_coverage
from mqstore.storage.metadata.state_page import StatePageReader
from mqstore.storage.paths import segment_name, segment_offset
from mqstore.storage.seams import FileSystem


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The part of a segment that is served."""

    name: str
    offset: int
    """Physical offset of its first byte."""
    size: int
    """Number of bytes served: all of them for a full segment."""
    is_full: bool
    epoch: int


class SegmentBytes:
    """Serves the durable bytes of the segments."""

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        segment_size: int,
        state: StatePageReader,
        blocks: BlockFiles,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_size = segment_size
        self._state = state
        self._blocks = blocks

    def all(self) -> list[SegmentPart]:
        """All segments, oldest first, without expired and empty ones.

        Raises StoreNotOpen while the store is being recovered.
        """
        epoch, minimum, end = self._bounds()
        bases = map(segment_offset, self._files.list(self._directory))
        return [
            self._part(base, end, epoch)
            for base in bases
            if base is not None and base + self._segment_size > minimum and base < end
        ]

    def part(self, name: str) -> SegmentPart:
        """The segment of this name.

        Raises SegmentUnknown, SegmentExpired, StoreNotOpen as ``all``.
        """
        base = segment_offset(name)
        epoch, minimum, end = self._bounds()
        if base is not None and base + self._segment_size <= minimum:
            raise SegmentExpired(f"segment {name} has expired; the log begins at {minimum}")
        path = self._directory / name
        if base is None or base >= end or self._files.stat(path) is None:
            raise SegmentUnknown(f"no segment {name[:40]!r} in this store; list them")
        return self._part(base, end, epoch)

    def read(self, part: SegmentPart, start: int, stop: int) -> bytes:
        """Read bytes by positions within the segment.

        Raises SegmentExpired when it was removed meanwhile, StoreNotOpen when a recovery has begun
        since ``part`` was made.
        """
        path = self._directory / part.name
        is_newest = part.offset + self._segment_size > self._state.max_offset
        try:
            found = self._files.read_range(path, start, stop - start, keep=is_newest)
        except FileNotFoundError:
            raise SegmentExpired(f"segment {part.name} has expired while it was read") from None
        self._require_unchanged(part)
        return found

    def checksums(self, part: SegmentPart, start: int, stop: int) -> list[int | None]:
        """CRC-32C of each whole block of 64 KiB between two positions, as of its sync; None for a
        block without one. Raises StoreNotOpen as ``read``."""
        entries = self._blocks.entries(part.offset)
        first = -(-start // BLOCK_SIZE)
        found: list[int | None] = []
        for number in range(first, stop // BLOCK_SIZE):
            length, crc = (0, 0) if entries is None else read_coverage(entries, part.offset, number)
            found.append(crc if length == BLOCK_SIZE else None)
        self._require_unchanged(part)
        return found

    def _require_unchanged(self, part: SegmentPart) -> None:
        """Check the epoch after a read."""
        if self._state.epoch != part.epoch:
            raise StoreNotOpen("recovering", "the store was recovered meanwhile; begin again")

    def _bounds(self) -> tuple[int, int, int]:
        state = self._state
        epoch = state.epoch
        if state.is_changing:
            raise StoreNotOpen("recovering", "the store is being recovered; try again")
        return epoch, state.min_offset, min(state.flushed_offset, state.max_offset)

    def _part(self, base: int, end: int, epoch: int) -> SegmentPart:
        size = min(self._segment_size, end - base)
        return SegmentPart(segment_name(base), base, size, size == self._segment_size, epoch)
