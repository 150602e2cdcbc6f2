"""Bounds of queues as readers see them: a queue ends before its first record that is not
dispatched.

Called from ``lookups`` and ``time_search``. Every method may be called from any thread.
"""

from __future__ import annotations

from bisect import bisect_left

from mqstore.storage.lookup.answers import QueueRange
from mqstore.storage.lookup.views import Bounds, Entry, QueueView, names_record


class QueueRanges:
    """The bounds of queues over one log."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def of(self, queue: QueueView) -> QueueRange:
        """The bounds of a queue."""
        # The maximum is read first: a growing or expiring queue never shows min above max.
        high = queue.max_index
        low = min(queue.min_index, high)
        return QueueRange(queue.topic, queue.queue_id, low, self._end(queue, low, high))

    def is_coming(self, entry: Entry) -> bool:
        """Whether the record is in the log but not dispatched or not readable, so that the entry is
        not trusted yet."""
        end = entry.physical_offset + entry.size
        return self._bounds.dispatched_offset < end <= self._bounds.log_end

    def is_incoming(self, queue: QueueView, index: int) -> bool:
        """Whether an entry names a record that ``is_coming``."""
        entry = queue.entry(index)
        return entry is not None and names_record(entry) and self.is_coming(entry)

    def _end(self, queue: QueueView, low: int, high: int) -> int:
        """The end of a queue for readers: its first entry whose record is not dispatched.

        Readers that wait at a queue's end are woken by readable records.
        """
        if low == high or not self.is_incoming(queue, high - 1):
            return high
        return bisect_left(range(high), True, low, key=lambda index: self.is_incoming(queue, index))
