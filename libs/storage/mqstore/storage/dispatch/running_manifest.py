"""Writes manifests of an open store:

``running.json`` from time to time, ``clean-close.json`` at a clean close.
"""

from __future__ import annotations

import logging

from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.dispatch.queue_flush import QueueFlushService
from mqstore.storage.index.service import IndexService
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.metadata import manifest
from mqstore.storage.metadata.format_file import FormatFile
from mqstore.storage.metadata.manifest import LogState, Manifest, QueueState
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.seams import FileSystem

log = logging.getLogger(__name__)


class RunningManifestService:
    """A ``BackgroundService``. After a crash dispatch starts where the last note says.

    Without room for a new note the last one stays, and is still true.
    """

    name = "running-manifest"

    def __init__(
        self,
        paths: StorePaths,
        content: FormatFile,
        interval_s: float,
        files: FileSystem,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        flush: QueueFlushService,
        index: IndexService,
    ) -> None:
        """``content`` is format.json of this opening; ``interval_s`` is between two notes."""
        self._paths = paths
        self._content = content
        self._files = files
        self._queues = queues
        self._dispatcher = dispatcher
        self._flush = flush
        self._index = index
        self._noted = -1, 0
        self._interval_s = interval_s

    def step(self, now: float) -> float:
        """Write a note when one is due. Raises StoreFailed."""
        position = self._dispatcher.position
        reached = position, self._queues.expired_files
        if reached != self._noted:
            # Counts read after the position and before the sync: at least the entries below it.
            states = tuple(self._queues.states())
            self._flush.flush_all()
            try:
                self.note(position, states)
                self._noted = reached
            except OSError as error:
                log.warning("how far the queues are cannot be noted, tried again: %s", error)
        return now + self._interval_s

    def note(self, position: int, states: tuple[QueueState, ...]) -> None:
        """Note that the entries of everything below ``position`` are on disk. Raises OSError."""
        manifest.save(self._files, self._paths.running, self._manifest(position, states))

    def note_clean_close(self, log: CommitLog) -> None:
        """Write ``clean-close.json``: all of ``log`` has its entries, everything is on disk, and
        puts have ended. Raises OSError."""
        paths = self._paths
        names, end = self._files.list(paths.index), log.max_offset
        state = LogState(
            min_offset=log.min_offset,
            max_offset=end,
            segments=tuple(file.path.name for file in log.files.files),
            last_store_timestamp_ms=log.last_store_timestamp_ms,
            checkpoint_crc32c=manifest.checkpoint_checksum(self._files, paths.checkpoint),
            index_files=tuple(name for name in names if name.isdigit()),
            tail=manifest.tail_of([(f.base_offset, f.view) for f in log.files.files], end),
        )
        note = self._manifest(end, tuple(self._queues.states()), state)
        manifest.save(self._files, paths.manifest, note)

    def _manifest(
        self, position: int, states: tuple[QueueState, ...], log: LogState | None = None
    ) -> Manifest:
        content = self._content
        return Manifest(
            store_id=content.store_id,
            epoch=content.epoch,
            lock_modified_ms=content.lock_modified_ms,
            derived_offset=position,
            queues=states,
            index_offset=self._index.synced_end,
            log=log,
        )
