"""A store by its path: at rest, or beside the writer that has it open. Nothing is locked.

Of a store at rest all that recovery would keep is read, wherever the last writer stopped. Beside a
writer of ours only what it had synced and dispatched when the look began is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mqstore.jobs.errors import NoStore, SegmentGone
from mqstore.jobs.log.named_records import NamedRecords
from mqstore.jobs.log.source import LogSegment, Snapshot
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.system.overlay_files import PrivateBase
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify.store_at_rest import StoreAtRest


def look(root: Path) -> Snapshot:
    """Raises NoStore for what is no store, or one that cannot be read."""
    seams = production_seams()
    base = cast(PrivateBase, seams.files)
    try:
        store = StoreAtRest.look(root.absolute(), StoreConfig(), seams, base, lambda *_: None)
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
    """Beside a writer of ours, only what no power cut takes back."""
    if not store.is_live or store.state is None:
        return store.end
    return min(store.end, store.state.flushed_offset)


@dataclass(frozen=True, slots=True)
class LogAtPath:
    """Where the files of one store are."""

    commit_log: Path
    consume_queue: Path
    queue_file_size: int

    @contextmanager
    def opened(self) -> Iterator[PathReader]:
        reader = PathReader(self)
        try:
            yield reader
        finally:
            reader.close()


class PathReader:
    """``LogReader`` over files. Read by pread: a file may go meanwhile, and no map outlives it."""

    def __init__(self, log: LogAtPath) -> None:
        self._files = PosixFileSystem()
        self._directory = log.commit_log
        self._named = NamedRecords(self._files, log.consume_queue, log.queue_file_size, self.read)

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
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
        return self._named.near(segment, offset, stop)

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        return self._named.next(segment, offset, stop)

    def close(self) -> None:
        self._named.close()
