"""Read-only opening of a store: beside a living writer, while one recovers, or at rest.

A reader maps files that are only ever unlinked, never shortened, and believes the state page: it
reads below the bounds given there and maps everything afresh when the epoch changes. It lists a
directory only when something that should be there is not mapped yet. Nothing is written. The disk
blocks of a deleted file are free once every reader has dropped its map: ``drop_deleted`` does.

Called from the query service and from tools. Every method may be called from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mqstore.storage._kernel import LogWindow
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreDamaged, StoreNotOpen, StoreUnsupported
from mqstore.storage.index.service import IndexService
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.lookup.queue_pulls import QueuePulls
from mqstore.storage.lookup.record_place import RecordPlaces
from mqstore.storage.lookup.segment_bytes import SegmentBytes
from mqstore.storage.lookup.topic_scan import TopicScans
from mqstore.storage.metadata import format_file, log_owner, regular_files
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.state_page import StatePageReader
from mqstore.storage.metadata.state_snapshot import StateSnapshot
from mqstore.storage.paths import StorePaths
from mqstore.storage.reader_views import (
    FollowedSteps,
    ReaderIndex,
    ReaderLog,
    ReaderQueues,
    reader_files,
)
from mqstore.storage.seams import FileSystem, Seams

log = logging.getLogger(__name__)


class StoreReader:
    """A store opened for reading only."""

    def __init__(
        self,
        root: Path,
        seams: Seams,
        state: StatePageReader,
        content: FormatFile,
        on_damage: Callable[[int], object] | None = None,
    ) -> None:
        """Use ``open``."""
        self.root = root
        self.format = content
        self.state = state
        self._paths = log_owner.locate(seams.files, root, content.store_path_commit_log)
        self._files: FileSystem = seams.files
        self._watched = self._paths.state, self._paths.commit_log
        self._opened = self._places()
        self._are_same: Callable[[], bool] = lambda: False
        """A fast check of ``why_replaced``; it may return False for places that are the same."""
        sizes = content.sizes
        segments = reader_files(
            self._paths.commit_log, sizes.mapped_file_size_commit_log, seams, state
        )
        self.log = ReaderLog(segments, state)
        self.window = window = LogWindow(*state.bound_words)
        """The log as look-ups in one call read it."""
        self.queues = ReaderQueues(
            self._paths, sizes.mapped_file_size_consume_queue, seams, state, window
        )
        config = StoreConfig(
            max_hash_slot_num=sizes.max_hash_slot_num, max_index_num=sizes.max_index_num
        )
        index = IndexService(self._paths, config, content.rocketmq_format, seams, writable=False)
        self.index = ReaderIndex(index, state)
        blocks = BlockFiles(
            seams.files, self._paths.blocks, sizes.mapped_file_size_commit_log, content.store_id
        )
        guard = BlockGuard(blocks, window, self._has_block_checksums, on_damage)
        self._forget_expired = guard.renew
        steps = FollowedSteps(seams.files, self._paths.clock)
        self.lookups = Lookups(self.log, self.queues, self.index, state, guard, steps.now)
        self.places = RecordPlaces(self.lookups, self.log, self.queues, guard)
        self.pulls = QueuePulls(self.lookups, self.queues)
        self.segments = SegmentBytes(
            seams.files, self._paths.commit_log, sizes.mapped_file_size_commit_log, state, blocks
        )
        self.scans = TopicScans(self.lookups, self.log, self.queues, state)

    @classmethod
    def open(
        cls, root: Path, seams: Seams, on_damage: Callable[[int], object] | None = None
    ) -> StoreReader:
        """Map a store that a writer opened at least once.

        ``on_damage`` gets physical offsets of damage that look-ups meet, as of ``BlockGuard``.

        Raises StoreNotOpen (state ``absent`` or ``unsupported``), StoreDamaged or StoreUnsupported
        (format.json), StoreOfAnother (its log is), OSError.
        """
        given, root = root, seams.files.real_path(root)
        paths = StorePaths(root)
        regular_files.require(seams.files, paths)
        place = seams.files.stat(paths.state)
        state = StatePageReader.open(seams.files, paths.state)
        content = format_file.load(seams.files, paths)
        if content is None:
            state.close()
            raise StoreNotOpen("absent", f"no {paths.format}; start a writer on the store once")
        located = log_owner.locate(seams.files, root, content.store_path_commit_log)
        regular_files.require(seams.files, located)
        log_owner.check(seams.files, located, content)
        reader = cls(root, seams, state, content, on_damage)
        reader._watched = StorePaths(given).state, reader._watched[1]  # a link may name another
        if place is None or reader._opened[0] != place.place or reader.why_replaced is not None:
            reader.close()
            raise StoreNotOpen("absent", f"the files in {root} are being replaced; try again")
        return reader

    @property
    def why_replaced(self) -> str | None:
        """The reason why the files at its path are no longer the opened ones; None while they
        are. Then nothing that was read is of the store any more. OSError.

        A writer never replaces its state page or its log's directory.
        """
        if self.state.store_id != self.format.store_id:
            return f"the state page is of store {self.state.store_id} now"
        if self._are_same():
            return None
        found = self._places()
        if self._opened[1] is None:  # a new store's log was not made yet
            self._opened = self._opened[0], found[1]
        for path, before, now in zip(self._watched, self._opened, found, strict=True):
            if before != now:
                return f"{path} is gone" if now is None else f"{path} is another file now"
        page, log = self._opened
        if page is not None and log is not None:
            places = dict(zip(self._watched, (page, log), strict=True))
            self._are_same = self._files.watch_places(places)
        return None

    def _places(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Device and inode of the state page and of the log's directory."""
        page, log = (self._files.stat(path) for path in self._watched)
        return None if page is None else page.place, None if log is None else log.place

    @property
    def writer_is_alive(self) -> bool:
        """Whether some process holds the store's lock; without one nothing new arrives."""
        return self._files.is_locked(self._paths.lock)

    def _has_block_checksums(self) -> bool:
        """Called when one does not fit: a broker may have changed the log since."""
        lock = self._files.stat(self._paths.lock)
        try:
            content = format_file.load(self._files, self._paths)
        except (StoreDamaged, StoreUnsupported):
            return False
        if content is None or lock is None:
            return False
        return format_file.has_block_checksums(content, lock.modified_ms)

    def snapshot(self) -> StateSnapshot:
        """Bounds and health, as the last writer published them. Raises StoreNotOpen while they
        change."""
        return self.state.snapshot()

    def wait_for_arrival(self, seen: int, timeout_s: float) -> bool:
        """Block until ``state.arrivals`` differs from ``seen``; False on a timeout."""
        return self.state.wait(seen, timeout_s)

    def drop_deleted(self) -> None:
        """Drop the maps of files that the writer unlinked, so that their disk blocks are free.

        Answers that were given stay whole: their bytes go with the last of them. One thread at a
        time. Raises OSError.
        """
        self.log.drop_deleted()
        self.queues.drop_deleted()
        self.index.drop_deleted()
        self._forget_expired()

    def drop_idle(self) -> None:
        """Drop the maps of queues that were not looked up since the call before; the next look-up
        maps them. Any thread."""
        self.queues.drop_idle()

    def close(self) -> None:
        """Unmap everything; answers that were given stay whole. No look-up after this."""
        self.lookups.forget()
        self.queues.close()
        self.index.close()
        self.log.close()
        self.state.close()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
