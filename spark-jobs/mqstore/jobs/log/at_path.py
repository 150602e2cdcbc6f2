"""Reads the log of a store by its path, at rest or beside its writer; takes no lock.

Of a store at rest the job reads everything that recovery would keep. Beside a writer of ours it
reads the part that the writer had synced and dispatched when the job took its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mqstore.jobs.errors import NoStore, SegmentGone
from mqstore.jobs.log.named_records import NamedRecords
from mqstore.jobs.log.source import LogSegment, Snapshot
from mqstore.storage import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.host import PosixFileSystem, PrivateBase, production_seams

if TYPE_CHECKING:
    from mqstore.storage.verify import StoreAtRest


def look(root: Path) -> Snapshot:
    """Take a snapshot of the log of a store. Raises NoStore if it is no readable store."""
    from mqstore.storage.verify import StoreAtRest  # a worker reads segments and needs none of it

    seams = production_seams()
    base = cast(PrivateBase, seams.files)
    try:
        store = StoreAtRest.open(root.absolute(), StoreConfig(), seams, base, lambda *_: None)
    except (StorageError, OSError) as error:
        raise NoStore(str(error)) from error
    paths, end = store.paths, _end_of(store)
    segments = tuple(
        LogSegment(each.path.name, each.base, max(each.base, store.min_offset), min(each.end, end))
        for each in store.view.segments.usable
        if each.base < end and each.end > store.min_offset
    )
    log = LogAtPath(paths.commit_log, paths.consume_queue, store.config.queue_file_size)
    return Snapshot(log, segments)


def _end_of(store: StoreAtRest) -> int:
    """The end of the readable log; beside a writer of ours the end of its synced part."""
    if not store.is_live or store.state is None:
        return store.end
    return min(store.end, store.state.flushed_offset)


@dataclass(frozen=True, slots=True)
class LogAtPath:
    """A log as files: the directories of one store."""

    commit_log: Path
    consume_queue: Path
    queue_file_size: int

    @contextmanager
    def opened(self) -> Iterator[PathReader]:
        """Open a reader for the context."""
        reader = PathReader(self)
        try:
            yield reader
        finally:
            reader.close()


class PathReader:
    """``LogReader`` over files. Reads by pread, as retention may delete a file at any time."""

    def __init__(self, log: LogAtPath) -> None:
        self._files = PosixFileSystem()
        self._directory = log.commit_log
        self._named = NamedRecords(self._files, log.consume_queue, log.queue_file_size, self.read)

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
        """See LogReader. Raises SegmentGone."""
        path = self._directory / segment.name
        try:
            found = self._files.read_range(path, offset - segment.base, size, keep=True)
        except FileNotFoundError:
            found = b""
        if len(found) != size:
            raise SegmentGone(
                f"segment {segment.name} was deleted while it was read: retention took it; run the"
                " job again, or keep the range with a pin"
            )
        return found

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """See LogReader."""
        return self._named.near(segment, offset, stop)

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """See LogReader."""
        return self._named.next(segment, offset, stop)

    def close(self) -> None:
        """Close the queue files that the reader has opened."""
        self._named.close()
