"""Delivers delayed messages when they are due: a level's queue in order, one put a message.

Source: DeliverDelayedMessageTimerTask of 4.9.7 and 5.4.0. As in 5.4.0, a message that can never be
delivered is passed over. A message that the store rejects for now is retried, and its level waits
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage.codec.record import Message, Record
from mqstore.storage.delay.duplicates import DeliveredCopies, DeliveryUnknown
from mqstore.storage.delay.progress import DelayProgress
from mqstore.storage.delay.rewriting import Undeliverable, copy_for_delivery, queue_of
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.errors import (
    MessageInvalid,
    PropertiesTooLong,
    PutRefused,
    RecordError,
    StorageError,
    TopicTooLong,
)
from mqstore.storage.layout import SCHEDULE_TOPIC, StoreFormat
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.metadata.clock_steps import CLOCK_STEP_MS
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.queues.queue_entry import QueueEntry

POLL_S: Final = 1.0
"""Longest pause: no level is shorter, and the wall clock may be set meanwhile."""
RETRY_S: Final = 1.0
"""Pause of a level after a put was rejected."""
SLICE: Final = 100
"""Messages of one level before the other levels have their turn."""
_TAGS_CODE_MAX: Final = 2**31 - 1
"""Greatest tags hash; every delivery time is above it."""
NEVER: Final = (MessageInvalid, PropertiesTooLong, TopicTooLong)
"""Rejections that every later put of the same message would meet too."""

_log = bounded_log(__name__)


class DeliveryService:
    """A ``BackgroundService`` that delivers delayed messages. StoreFailed ends it."""

    name = "deliver-delayed"

    def __init__(
        self,
        put: Callable[[Message], object],
        log: CommitLog,
        queues: ConsumeQueues,
        levels: DelayLevels,
        progress: DelayProgress,
        store_format: StoreFormat,
        copies: DeliveredCopies | None = None,
    ) -> None:
        """``put`` appends a message as it is, ignoring its DELAY; it may raise PutRefused,
        StoreFailed. ``copies`` finds messages that were delivered before the opening."""
        self.delivered = 0
        self.suppressed = 0
        """Messages that were not delivered again, as a copy was found in the log."""
        self.passed_over = 0
        """Messages that are unreadable or have no valid destination."""
        self.on_delivered: Callable[[int], None] = lambda _: None
        """Called in this service's thread after each delivery with its lateness in milliseconds."""
        self.waiting: dict[int, str] = {}
        """By level, why it does not proceed although messages are due."""
        self._put = put
        self._log = log
        self._queues = queues
        self._levels = levels
        self._progress = progress
        self._format = store_format
        self._copies = copies

    def step(self, now: float) -> float:
        """Deliver due messages, and save progress when that is due. Raises StoreFailed."""
        waits = [self._deliver(level) for level in self._levels.numbers]
        return min(now + min(waits), self._progress.step(now))

    def due_ms(self, level: int) -> int | None:
        """The due time of a level's next message by the present clock, in milliseconds since the
        epoch; None when none is pending. Thread-safe."""
        queue = self._queue(level)
        entry = queue.entry(self._progress.next(level)) if queue is not None else None
        return None if entry is None else sum(self._times(level, entry))

    def _deliver(self, level: int) -> float:
        """Deliver up to SLICE due messages of a level; returns the seconds until its next turn."""
        queue = self._queue(level)
        if queue is None:
            return POLL_S
        for _ in range(SLICE):
            index = self._index(level, queue)
            entry = queue.entry(index)
            if entry is None:
                return POLL_S
            wait_ms = self._wait_ms(level, entry)
            if wait_ms > 0:
                return min(POLL_S, wait_ms / 1000)
            if not self._finish(level, index, entry):
                return RETRY_S
            self._progress.move(level, index + 1)
        return 0.0

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, queue_of(level))

    def _index(self, level: int, queue: ConsumeQueue) -> int:
        """The level's next queue offset, moved into the queue's bounds where it lies outside
        them."""
        index = self._progress.next(level)
        within = max(queue.min_index, min(index, queue.max_index))
        if within != index:
            _log.error(
                "delay level %d goes on at queue offset %d, not %d: its queue has %d to %d",
                *(level, within, index, queue.min_index, queue.max_index),
            )
            self._progress.move(level, within)
        return within

    def _times(self, level: int, entry: QueueEntry) -> tuple[int, int]:
        """The present time, and the milliseconds from it to the entry's due time, shifted by the
        steps of the clock since the message was stored."""
        named_ms = self._named_ms(level, entry)
        now_ms, steps = self._log.noted_time()
        return now_ms, named_ms + steps.shift_ms(entry.physical_offset) - now_ms

    def _named_ms(self, level: int, entry: QueueEntry) -> int:
        """The due time that the entry holds, or that of the record itself where the entry holds
        another code: that of TAGS after a crash of 4.9.7, or the address of a ConsumeQueueExt
        unit."""
        if entry.tags_code > _TAGS_CODE_MAX:
            return entry.tags_code
        try:
            found = self._log.record_at(entry.physical_offset, with_body=False)
        except StorageError:
            return 0  # nothing to wait for: it is passed over
        return self._levels.delivery_time(level, found.store_timestamp_ms)

    def _wait_ms(self, level: int, entry: QueueEntry) -> int:
        """Milliseconds until an entry is due.

        As in RocketMQ, an entry that is much further ahead than its level's delay is due now: the
        level was longer, or the clock was set back while a broker had the store.
        """
        _, wait_ms = self._times(level, entry)
        delay_ms = self._levels.delivery_time(level, 0)
        return min(wait_ms, delay_ms) if wait_ms <= delay_ms + CLOCK_STEP_MS else 0

    def _finish(self, level: int, index: int, entry: QueueEntry) -> bool:
        """Deliver an entry's message, or pass it over; False when it is to be retried."""
        try:
            self._hand_over(level, index, entry)
        except (RecordError, Undeliverable, *NEVER) as error:
            self.passed_over += 1
            _log.error("delayed message %d of level %d is passed over: %s", index, level, error)
        except (DeliveryUnknown, PutRefused) as error:
            if self.waiting.get(level) != str(error):
                self.waiting[level] = str(error)
                _log.warning("delay level %d stands still: %s", level, error)
            return False
        self.waiting.pop(level, None)
        return True

    def _hand_over(self, level: int, index: int, entry: QueueEntry) -> None:
        head = self._read(entry, with_body=False)
        if not _is_at(head, level, index):
            return  # the entry fills a hole: the record has its own entry
        if self._copies is not None and self._copies.is_delivered(head):
            self.suppressed += 1
            return
        self._put(copy_for_delivery(self._read(entry), self._format))
        self.delivered += 1
        self.on_delivered(max(0, -self._times(level, entry)[1]))

    def _read(self, entry: QueueEntry, *, with_body: bool = True) -> Record:
        """Read the entry's record. Raises RecordError, Undeliverable."""
        try:
            return self._log.record_at(entry.physical_offset, with_body=with_body)
        except RecordError:
            raise
        except StorageError as error:
            raise Undeliverable(str(error)) from error


def _is_at(found: Record, level: int, index: int) -> bool:
    place = found.topic, found.queue_id, found.queue_offset
    return place == (SCHEDULE_TOPIC, queue_of(level), index)
