"""``DelayedMessages`` joins the parts of delayed delivery: delivery, progress and status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay.delivery import DeliveryService
from mqstore.storage.delay.duplicates import DeliveredCopies
from mqstore.storage.delay.progress import DelayProgress
from mqstore.storage.delay.rewriting import level_of_queue, queue_of
from mqstore.storage.delay.timer import TimerService
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.layout import SCHEDULE_TOPIC, StoreFormat
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.recovery.report import LoweredOffset
from mqstore.storage.retention.groups import next_record
from mqstore.storage.retention.holds import Hold
from mqstore.storage.seams import Seams
from mqstore.storage.tables.config_tables import DelayOffsets

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DelayLevelStatus:
    """The state of one level at one moment; offsets are of its queue in SCHEDULE_TOPIC_XXXX."""

    level: int
    delay: str
    """The level's text in messageDelayLevel; empty for a level that the setting does not have."""
    queue_min: int
    queue_max: int
    delivered_up_to: int
    """Queue offset below which all messages are delivered or passed over."""
    pending: int
    next_due_ms: int | None
    """Milliseconds since the epoch; None when nothing is pending."""
    waiting: str | None
    """Why the level does not proceed although messages are due; else None."""


class DelayedMessages:
    """Delivers and reports delayed messages. Thread-safe, except ``save``."""

    def __init__(
        self,
        table: DelayOffsets,
        levels: DelayLevels,
        config: StoreConfig,
        store_format: StoreFormat,
        log: CommitLog,
        queues: ConsumeQueues,
        lookups: Lookups,
        seams: Seams,
        paths: StorePaths,
        put: Callable[[Message], object],
    ) -> None:
        """``put`` as in DeliveryService. ``table`` may be behind the log."""
        self.levels = levels
        self._log = log
        self._queues = queues
        self._progress = DelayProgress(table, log, config)
        copies = DeliveredCopies(lookups, log.max_offset) if config.message_index_enable else None
        self.service = DeliveryService(
            put,
            log,
            queues,
            self.levels,
            self._progress,
            store_format,
            copies,
        )
        self.timer = TimerService(paths, seams, store_format, log, queues, copies, put)
        """Delivers the messages that name a time instead of a level."""
        for level in self._missing_levels():
            status = self._status(level)
            _log.warning(
                "%d delayed messages are not delivered: %s", status.pending, status.waiting
            )

    def lower_to_ends(self) -> list[LoweredOffset]:
        """Lower the delivery offset of each level to its queue's end; returns the lowered offsets.

        Raises OSError."""
        ends = {
            level: self._log.offsets.next(SCHEDULE_TOPIC, queue_of(level))
            for level in self.levels.numbers
        }
        return [
            LoweredOffset(
                topic=SCHEDULE_TOPIC, queue_id=queue_of(level), before=before, after=after
            )
            for level, before, after in self._progress.lower(ends)
        ]

    def adopt(self, text: str) -> None:
        """Take a leader's progress (``DelayProgress.adopt``) where nothing is delivered."""
        self._progress.adopt(text)

    def save(self) -> None:
        """Save the progress, once the service has stopped.

        Raises FlushTimeout, StoreFailed, OSError.
        """
        self._progress.save()
        self.timer.save()

    def close(self) -> None:
        """Let the timer's files go."""
        self.timer.close()

    def holds(self) -> Iterator[Hold]:
        """Hold each level's undelivered messages, from the oldest, and those that wait for their
        time; RocketMQ would delete them."""
        yield from self.timer.holds()
        for level in (*self.levels.numbers, *self._missing_levels()):
            queue = self._queues.get(SCHEDULE_TOPIC, queue_of(level))
            if queue is None:
                continue
            offset = next_record(queue, self._progress.next(level))
            if offset is not None:
                yield Hold(
                    kind="delay",
                    name=str(level),
                    from_offset=offset,
                    to_offset=None,
                    until_ms=None,
                )

    def status(self) -> list[DelayLevelStatus]:
        """The status of every level of the setting, from 1, and of each further one that a broker
        with more levels left messages in."""
        return [self._status(level) for level in (*self.levels.numbers, *self._missing_levels())]

    def _missing_levels(self) -> Iterator[int]:
        for queue_id in self._queues.queue_ids(SCHEDULE_TOPIC):
            level, queue = level_of_queue(queue_id), self._queues.get(SCHEDULE_TOPIC, queue_id)
            if level > self.levels.max_level and queue is not None and self._pending(level, queue):
                yield level

    def _pending(self, level: int, queue: ConsumeQueue) -> int:
        return max(0, queue.max_index - max(queue.min_index, self._progress.next(level)))

    def _status(self, level: int) -> DelayLevelStatus:
        queue = self._queues.get(SCHEDULE_TOPIC, queue_of(level))
        low, high = (queue.min_index, queue.max_index) if queue is not None else (0, 0)
        following, is_missing = self._progress.next(level), level > self.levels.max_level
        return DelayLevelStatus(
            level=level,
            delay="" if is_missing else self.levels.names[level - 1],
            queue_min=low,
            queue_max=high,
            delivered_up_to=following,
            pending=0 if queue is None else self._pending(level, queue),
            next_due_ms=self.service.due_ms(level),
            waiting=self._why_missing(level) if is_missing else self.service.waiting.get(level),
        )

    def _why_missing(self, level: int) -> str:
        return (
            f"messageDelayLevel has {self.levels.max_level} levels, and a broker with more stored "
            f"messages of level {level}: give the setting that broker's levels"
        )
