"""Unlinks segments with their checksums, and then the files derived from them alone.

Source: CleanCommitLogService, CleanConsumeQueueService and IndexService.deleteExpiredFile of 4.9.7
and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.dispatch.queue_flush import QueueFlushService
from mqstore.storage.index.service import IndexService
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.queues.consume_queues import ConsumeQueues


class Removal:
    """Removes segments and derived files. One thread at a time."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService,
        dispatcher: Dispatcher,
        queue_flush: QueueFlushService,
        allocation: AllocationService,
        blocks: BlockFiles,
        forget: Callable[[], None],
    ) -> None:
        """``forget`` makes look-ups release removed segments, so that their disk space becomes
        free."""
        self.queue_files = 0
        """Queue files unlinked since the opening; ``index_files`` likewise."""
        self.index_files = 0
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._queue_flush = queue_flush
        self._allocation = allocation
        self._blocks = blocks
        self._forget = forget
        self._derived_min = 0
        """The log's minimum at the last cleaning of queues and index."""

    def remove_segments(self, count: int) -> int:
        """Unlink up to ``count`` segments, the oldest first and never the last; returns how many.

        Queue entries are synced before their records are removed: they could not be made again, and
        the queue would assign their offsets a second time. A segment that is not dispatched stays,
        and so does, until destroyMapedFileIntervalForcibly is over, one that is in use. Raises
        StoreFailed, OSError.
        """
        dispatched = self._dispatcher.position
        oldest = self._log.files.files[:-1][:count]
        ready = [file for file in oldest if file.end_offset <= dispatched]
        if not ready:
            return 0
        end = ready[-1].end_offset
        if (
            end > self._log.flushed_offset
        ):  # otherwise the log would begin above its durable watermark
            self._log.flush.flush_all()
        if end > self._queue_flush.durable_position:
            self._queue_flush.flush_all()
        removed = self._log.remove_first(len(ready))
        self._blocks.drop(0, self._log.min_offset)
        self._forget()
        return removed

    def give_up_spares(self) -> int:
        """Unlink segments that were made ahead and hold nothing; returns their bytes.

        Raises OSError.
        """
        return self._allocation.give_up_spares()

    def make_spares(self, allowed: bool) -> None:
        """Allow or forbid making segments before a put needs them."""
        self._allocation.makes_spares = allowed

    def remove_derived(self) -> Iterator[None]:
        """Unlink files below the log's minimum, if that has grown; yields after each queue that
        lost files. Raises OSError."""
        minimum = self._log.min_offset
        if minimum <= self._derived_min:
            return
        for gone in self._queues.delete_before(minimum):
            self.queue_files += gone
            yield
        self.index_files += self._index.delete_before(minimum)
        self._derived_min = minimum
