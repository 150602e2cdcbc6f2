"""Loads the unique keys after an opening from the log's tail, as it was then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage._kernel import Defect, find_record
from mqstore.storage.config import StoreConfig
from mqstore.storage.dedup.window import KeyWindow
from mqstore.storage.errors import StorageError
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.metadata.clock_steps import StepsView
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues

TAIL_MAX: Final = 1 << 30
"""Maximum bytes of log that are read."""


def read_tail(
    log: CommitLog,
    queues: ConsumeQueues,
    config: StoreConfig,
    dispatched: int,
    steps: StepsView,
    monotonic: Callable[[], float],
) -> Callable[[], KeyWindow]:
    """Prepare the load of the keys that clients put within uniqueKeyWindow of the newest record.

    All records below ``dispatched``, a record's begin, are in the queues. Queues and the log's end
    are read by this call, not by the load: they may change meanwhile. ``steps`` are those of the
    clock, ``monotonic`` returns seconds.
    """
    end = log.max_offset
    since_ms, lowest = log.last_store_timestamp_ms - config.unique_key_window, end - TAIL_MAX
    start = _start(log, queues, since_ms, lowest, steps)
    if start > dispatched:  # rebuilt queues may name an earlier record
        start = min(start, max(dispatched, _segment_before(log, since_ms, lowest, steps)))

    def read() -> KeyWindow:
        window, position = KeyWindow(config, monotonic), start
        while (position := max(position, log.min_offset)) < end:  # expired segments are skipped
            position = _read_segment(window, log, position, end)
        return window

    return read


def _segment_before(log: CommitLog, since_ms: int, lowest: int, steps: StepsView) -> int:
    """The begin of the last segment whose first record is that old, or at or below ``lowest``."""
    for file in reversed(log.files.files):
        first = file.base_offset
        if first <= lowest or _is_older(log, first, since_ms - steps.shift_ms(first)):
            return first
    return log.min_offset


def _is_older(log: CommitLog, offset: int, since_ms: int) -> bool:
    try:
        return log.record_at(offset).store_timestamp_ms <= since_ms
    except StorageError:  # the end of the log, or damage: the time is unknown
        return False


def _start(
    log: CommitLog, queues: ConsumeQueues, since_ms: int, lowest: int, steps: StepsView
) -> int:
    """The first record of any queue that is at or after this time and offset."""
    starts = (_start_in(queue, log, since_ms, lowest, steps) for queue in queues.all())
    return min(starts, default=log.max_offset)


def _start_in(
    queue: ConsumeQueue, log: CommitLog, since_ms: int, lowest: int, steps: StepsView
) -> int:
    by_time = queue.find_by_time(since_ms, log, steps.shift_ms)
    first = max(queue.min_index, queue.find_by_physical(lowest), by_time)
    for _, entry in queue.entries(first, queue.max_index):
        if not entry.is_hole and entry.physical_offset >= max(lowest, log.min_offset):
            return entry.physical_offset
    return log.max_offset


def _read_segment(window: KeyWindow, log: CommitLog, offset: int, limit: int) -> int:
    """Read records up to the segment's end or the limit; returns the begin of the next segment.

    Unreadable records are skipped: their keys stay unknown. Returns the same offset when the
    segment expired meanwhile.
    """
    place = log.view_from(offset)
    if place is None:
        return offset if offset < log.min_offset else log.max_offset
    view, position, written = place
    base = offset - position
    end = min(written, limit - base)
    while 0 <= position < end:
        defect, position = window.add_run(view, position, end, base)
        if defect is Defect.BLANK:
            break
        if defect is not Defect.NONE:
            position = find_record(view, position + 1, end, base, False)
    return base + len(view)
