"""Loads the unique keys after an opening from the log's tail, as it was then."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from typing import Final

from mqstore.storage._kernel import Defect
from mqstore.storage.config import StoreConfig
from mqstore.storage.dedup.window import KeyWindow
from mqstore.storage.errors import StorageError
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.log.defects import NO_QUEUES, DamageSearch, Stretch, resume_after
from mqstore.storage.metadata.clock_steps import StepsView
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues

TAIL_MAX: Final = 1 << 30
"""Maximum bytes of log that are read."""
QUEUES_MAX: Final = 64
"""Maximum number of queues that are searched for the tail's begin: the longest ones, since together
they name records that are close to each other."""


def read_tail(
    log: CommitLog,
    queues: ConsumeQueues,
    config: StoreConfig,
    steps: StepsView,
    monotonic: Callable[[], float],
) -> Callable[[], KeyWindow]:
    """Prepare the load of the keys that clients put within uniqueKeyWindow of the newest record.

    Queues and the log's end are read by this call, not by the load: they may change meanwhile. The
    queues may lack entries. ``steps`` are those of the clock, ``monotonic`` returns seconds.
    """
    end = log.max_offset
    since_ms, lowest = log.last_store_timestamp_ms - config.unique_key_window, end - TAIL_MAX
    start = _start(log, queues, since_ms, lowest, steps)

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
        return log.record_at(offset, with_body=False).store_timestamp_ms <= since_ms
    except StorageError:  # the end of the log, or damage: the time is unknown
        return False


def _start(
    log: CommitLog, queues: ConsumeQueues, since_ms: int, lowest: int, steps: StepsView
) -> int:
    """The greatest known offset below which all records are before this time or offset."""
    longest = nlargest(QUEUES_MAX, queues.states(), key=lambda state: state.end - state.first)
    opened = [queues.get(state.topic, state.queue_id) for state in longest]
    passed = [_last_before(q, log, since_ms, lowest, steps) for q in opened if q is not None]
    return max([_segment_before(log, since_ms, lowest, steps), *passed])


def _last_before(
    queue: ConsumeQueue, log: CommitLog, since_ms: int, lowest: int, steps: StepsView
) -> int:
    """The last record of a queue that is before this time or offset."""
    by_time = queue.find_by_time(since_ms, log, steps.shift_ms)
    end = max(queue.find_by_physical(lowest), by_time)
    for index in range(end - 1, queue.min_index - 1, -1):
        entry = queue.entry(index)
        if entry is not None and not entry.is_hole:
            return entry.physical_offset
    return log.min_offset


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
    end, searches = min(written, limit - base), DamageSearch()
    while position < end:
        defect, position = window.add_run(view, position, end, base)
        if defect is Defect.BLANK:
            break
        if defect is not Defect.NONE:
            stretch = Stretch(view, position, end, base)
            position = resume_after(stretch, NO_QUEUES, searches).position
    return base + len(view)
