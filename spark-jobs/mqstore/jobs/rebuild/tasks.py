"""What Spark's workers do: items of the log found by ranges, then index files filled by slots.

Nothing is held but one chunk's items. How they get from the ones to the others, ``gathered`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.jobs.errors import SegmentGone
from mqstore.jobs.log.at_path import LogAtPath
from mqstore.jobs.log.source import LogRange, LogSegment
from mqstore.jobs.rebuild.segment_views import viewed
from mqstore.storage._kernel import item_at
from mqstore.storage.index.build import BuildPlan, PartBuilder, PartBuilt
from mqstore.storage.index.plan import Item, Layout
from mqstore.storage.index.scan import Chunk, IndexScan
from mqstore.storage.recovery.view import QueueFiles
from mqstore.storage.system.posix_files import PosixFileSystem

if TYPE_CHECKING:
    from mqstore.jobs.rebuild.segment_views import LogPlace

Items = tuple[int, bytes]
"""Of one part, and where their chunk begins."""
Told = tuple[int, Chunk]
"""Where a chunk's range began, and what the chunk held."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """How items are found; goes to each task."""

    log: LogPlace
    layout: Layout
    parts: int

    def chunks(self, part: LogRange) -> Iterator[tuple[Chunk, list[bytes]]]:
        """Raises JobError."""
        with viewed(self.log, part) as (view, base):
            scan = IndexScan(
                view,
                base,
                QueueNames(self.log),
                parts=self.parts,
                slots=self.layout.slots,
                tags=self.layout.tags,
            )
            yield from scan.chunks(part.start, part.stop)

    def item(self, segments: Iterable[LogSegment], chunk: Chunk, number: int) -> Item:
        """One item of a chunk, found again."""
        alone = replace(self, parts=1)
        for segment in segments:
            if segment.start <= chunk.start < segment.end:
                for _, items in alone.chunks(LogRange(segment, chunk.start, chunk.end)):
                    found = item_at(items[0], number)
                    if found is not None:
                        return found
        raise SegmentGone(f"the log from {chunk.start} on was changed while it was read")


class QueueNames:
    """What queue entries name, as far as damage is stepped over by them; by URL they name none."""

    def __init__(self, log: LogPlace) -> None:
        self._log = log

    def next_physical(self, after: int) -> int | None:
        log = self._log
        return _next_named(log, after) if isinstance(log, LogAtPath) else None


def _next_named(log: LogAtPath, after: int) -> int | None:
    files, found = PosixFileSystem(), []
    for topic in files.list(log.consume_queue):
        for name in files.list(log.consume_queue / topic):
            if name.isascii() and name.isdigit():
                directory = log.consume_queue / topic / name
                queue = QueueFiles(files, directory, log.queue_file_size)
                found.append(queue.first_beyond(after))
                queue.close()
    return min((offset for offset in found if offset is not None), default=None)


def build_part(directory: Path, plan: BuildPlan, chunks: Iterable[Items]) -> Iterator[PartBuilt]:
    """One part's items, in the order of the log, into all files."""
    builder = PartBuilder(PosixFileSystem(), directory, plan)
    try:
        for start, items in chunks:
            builder.add(start, items)
    finally:
        built = builder.close()
    yield built
