"""Finding the unique keys again at an opening: from the log's tail, before anything is put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage._kernel import Defect, find_record
from mqstore.storage.config import StoreConfig
from mqstore.storage.derived.consume_queue import ConsumeQueue
from mqstore.storage.derived.consume_queues import ConsumeQueues
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.once.window import KeyWindow
from mqstore.storage.options import Progress

TAIL_MAX: Final = 1 << 30
"""Bytes of log that are read at most."""


def read_tail(
    log: CommitLog,
    queues: ConsumeQueues,
    config: StoreConfig,
    on_progress: Callable[[Progress], None] | None,
) -> KeyWindow:
    """What clients put within uniqueKeyWindow of the newest record."""
    window = KeyWindow(config)
    end = log.max_offset
    since_ms = log.last_store_timestamp_ms - config.unique_key_window
    start = position = _start(log, queues, since_ms, end - TAIL_MAX)
    while position < end:
        if on_progress is not None:
            on_progress(Progress("unique keys", position - start, end - start))
        position = _read_segment(window, log, position)
    return window


def _start(log: CommitLog, queues: ConsumeQueues, since_ms: int, lowest: int) -> int:
    """The first record of any queue that is neither older nor lower than that."""
    starts = (_start_in(queue, log, since_ms, lowest) for queue in queues.all())
    return min(starts, default=log.max_offset)


def _start_in(queue: ConsumeQueue, log: CommitLog, since_ms: int, lowest: int) -> int:
    first = max(queue.min_index, queue.find_by_physical(lowest), queue.find_by_time(since_ms, log))
    for _, entry in queue.entries(first, queue.max_index):
        if not entry.is_hole and entry.physical_offset >= max(lowest, log.min_offset):
            return entry.physical_offset
    return log.max_offset


def _read_segment(window: KeyWindow, log: CommitLog, offset: int) -> int:
    """From a record on to its segment's end; where the next segment begins.

    What cannot be read is passed over: its keys are not known.
    """
    place = log.view_from(offset)
    if place is None:
        return log.max_offset
    view, position, end = place
    base = offset - position
    while 0 <= position < end:
        defect, position = window.add_run(view, position, end, base)
        if defect is Defect.BLANK:
            break
        if defect is not Defect.NONE:
            position = find_record(view, position + 1, end, base, False)
    return base + len(view)
