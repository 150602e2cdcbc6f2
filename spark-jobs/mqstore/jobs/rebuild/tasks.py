"""The work of Spark's workers: extract items from ranges of the log, fill index files by slots.

A worker holds the items of one chunk at a time. ``gathered`` carries items between the two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.jobs.errors import QueuesBehind, SegmentGone
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.segment_views import viewed
from mqstore.storage.directory import NextNamed, QueueFiles
from mqstore.storage.host import PosixFileSystem
from mqstore.storage.index import (
    BuildPlan,
    Chunk,
    IndexScan,
    Item,
    Layout,
    PartBuilder,
    PartCounts,
    item_at,
)

if TYPE_CHECKING:
    from mqstore.jobs.rebuild.segment_views import LogPlace

Items = tuple[int, bytes]
"""The physical offset where a chunk begins, and its items of one part."""
FoundChunk = tuple[int, Chunk]
"""The physical offset where the range of a chunk begins, and the chunk."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """Extracts the items of a log; Spark sends it to each task."""

    log: LogPlace
    layout: Layout
    parts: int
    has_queues: bool = True
    """False: the queues are not complete yet; damage for which they are needed is QueuesBehind."""

    def chunks(self, part: LogRange) -> Iterator[tuple[Chunk, list[bytes]]]:
        """The chunks of a range with their items by part. Raises JobError."""
        with viewed(self.log, part) as (view, base):
            scan = IndexScan(
                view,
                base,
                QueueNames(self.log if self.has_queues else None),
                parts=self.parts,
                slots=self.layout.slots,
                tags=self.layout.tags,
            )
            yield from scan.chunks(part.start, part.stop)

    def item(self, segments: Iterable[LogSegment], chunk: Chunk, number: int) -> Item:
        """Extract one item of a chunk once more. Raises SegmentGone if the log has changed."""
        alone = replace(self, parts=1)
        for segment in segments:
            if segment.start <= chunk.start < segment.end:
                for _, items in alone.chunks(LogRange(segment, chunk.start, chunk.end)):
                    found = item_at(items[0], number)
                    if found is not None:
                        return found
        raise SegmentGone(f"the log from {chunk.start} on was changed while it was read")


class QueueNames:
    """Finds the record after damage through queue entries; a log at a URL has none.

    None stands for a log whose queues are not complete yet.
    """

    def __init__(self, log: LogPlace | None) -> None:
        self._log = log
        self._named: NextNamed[Path] | None = None

    def next_physical(self, after: int) -> int | None:
        """The lowest physical offset beyond ``after`` that a queue entry names; None if none.

        Raises QueuesBehind.
        """
        log = self._log
        if log is None:
            raise QueuesBehind(f"the log is damaged at offset {after}")
        if not isinstance(log, LogAtPath):
            return None
        if self._named is None or after < self._named.start:
            first_from = partial(_first_named, log.queue_file_size)
            self._named = NextNamed(_directories(log.consume_queue), first_from, after)
        return self._named.above(after)


def _directories(consume_queue: Path) -> Iterator[Path]:
    files = PosixFileSystem()
    for topic in files.list(consume_queue):
        for name in files.list(consume_queue / topic):
            if name.isascii() and name.isdigit():
                yield consume_queue / topic / name


def _first_named(file_size: int, directory: Path, offset: int) -> int | None:
    """The lowest physical offset from another one on that an entry of one queue names."""
    queue = QueueFiles(PosixFileSystem(), directory, file_size)
    try:
        return queue.first_beyond(offset - 1)
    finally:
        queue.close()


def build_part(directory: Path, plan: BuildPlan, chunks: Iterable[Items]) -> Iterator[PartCounts]:
    """Write the items of one part, in the order of the log, to all index files."""
    builder = PartBuilder(PosixFileSystem(), directory, plan)
    try:
        for start, items in chunks:
            builder.add(start, items)
    finally:
        built = builder.close()
    yield built
