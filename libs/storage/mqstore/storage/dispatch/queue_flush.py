"""Syncs queues and index after the dispatcher, and then moves the checkpoint.

Every flushIntervalConsumeQueue queues with enough waiting pages are synced, every
flushConsumeQueueThoroughInterval all of them; then logicsMsgTimestamp moves. Source:
FlushConsumeQueueService of 4.9.7 and 5.4.0.

After each flush of everything all queues are looked at, some at a time: those that got no entry
since the last look are unmapped until they are next used (``ConsumeQueue.rest``).

While the index is behind the queues, logicsMsgTimestamp stays at the index's own time: a broker
that opens the store after a halt dispatches again from there, and only so completes the index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.index.service import IndexService
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.tables.checkpoint import Checkpoint

if TYPE_CHECKING:
    from mqstore.storage.dispatch.dispatcher import Dispatcher
    from mqstore.storage.queues.consume_queue import ConsumeQueue

REST_STEP: Final = 128
"""Queues looked at in each step. Dispatch pauses while they are unmapped, for about 4 ms."""


class QueueFlushService:
    """A ``BackgroundService``. StoreFailed ends it, as any failed sync ends the store."""

    name = "flush-queues"

    def __init__(
        self,
        queues: ConsumeQueues,
        index: IndexService | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        config: StoreConfig,
    ) -> None:
        self.durable_position = 0
        """Physical offset below which all queue entries are on disk."""
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._reached_ms = checkpoint.logics_ms
        """Store time up to which queue entries are on disk."""
        self._interval_s = config.flush_interval_consume_queue / 1000
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_due = -math.inf
        self._lock = Lock()
        self._unseen: list[ConsumeQueue] = []
        """The queues that are left of this look at all."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the sync of queues."""
        with self._lock:
            yield

    def step(self, now: float) -> float:
        """Flush what is due. Raises StoreFailed, OSError."""
        if now >= self._thorough_due:
            self._thorough_due = now + self._thorough_s
            self.flush_all()
            self._unseen = self._unseen or self._queues.opened()
        else:
            with self._lock:
                self._queues.flush(self._least_pages)
                self._flush_index()
        with self._lock:
            idle = [queue for queue in self._unseen[-REST_STEP:] if queue.may_rest()]
            del self._unseen[-REST_STEP:]
            if idle:  # an append that finds dispatch paused leaves it to the background
                self._dispatcher.rest(idle)
        return now + self._interval_s

    def flush_all(self, *, closing: bool = False) -> None:
        """Sync every queue and, when ``closing``, the current index file; move the checkpoint."""
        with self._lock:
            position = self._dispatcher.position
            reached_ms = self._dispatcher.last_store_timestamp_ms or self._reached_ms
            self._queues.flush()
            self._flush_index(everything=closing)
            self.durable_position, self._reached_ms = position, reached_ms
            held_ms = self._checkpoint.index_ms if self._dispatcher.catch_up.behind else reached_ms
            self._checkpoint.logics_ms = min(reached_ms, held_ms)
            self._checkpoint.flush()

    def _flush_index(self, *, everything: bool = False) -> None:
        if self._index is not None:
            self._index.flush(everything=everything)
