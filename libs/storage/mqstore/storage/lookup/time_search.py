"""Finds the place of a time in queues, by a binary search over the store times of their records.

Where the clock was set back, a queue is searched in runs: within a run store times do not go back.

Called from ``lookups``, ``topic_scan`` and the query service. Every method may be called from any
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from mqstore.storage._kernel import LogWindow, first_at
from mqstore.storage.errors import StorageError
from mqstore.storage.lookup.answers import QueueRange
from mqstore.storage.lookup.log_reads import LogReads
from mqstore.storage.lookup.queue_ranges import QueueRanges
from mqstore.storage.lookup.views import Bounds, LogView, QueueView, first_from, names_record
from mqstore.storage.metadata.clock_steps import StepsView

UNREADABLE_MAX: Final = 10_000
"""Maximum number of entries passed over in search of a readable record."""


class TimeSearch:
    """The searches by time over a log and its queues."""

    def __init__(
        self,
        log: LogView,
        bounds: Bounds,
        reads: LogReads,
        window: LogWindow,
        ranges: QueueRanges,
        steps: Callable[[], StepsView],
    ) -> None:
        """``steps`` are the clock steps that the writer recorded: store times go back there."""
        self._log = log
        self._bounds = bounds
        self._reads = reads
        self._window = window
        self._ranges = ranges
        self._steps = steps
        self._known: tuple[tuple[int, int], StepsView] | None = None

    @property
    def back_offsets(self) -> tuple[int, ...]:
        """Physical offsets at which the store times of the log go back.

        The writer records a step before it stores the next record. So the steps are read again only
        when the log has grown, or was changed by a recovery. Raises OSError.
        """
        now = self._bounds.epoch, self._log.max_offset  # before the steps are read
        known = self._known
        if known is None or known[0] != now:
            self._known = known = now, self._steps()
        return known[1].back_offsets

    def find(self, queue: QueueView, timestamp_ms: int) -> int:
        """Find the queue offset of the first record stored at or after a time; the end of the queue
        without one."""
        return self.find_each([queue], timestamp_ms)[0][1]

    def find_each(
        self, queues: Sequence[QueueView], timestamp_ms: int
    ) -> list[tuple[QueueRange, int]]:
        """Find as ``find`` in each queue; returns its bounds too."""
        backs = self.back_offsets
        return self._reads.read_consistently(
            lambda: [self._find(each, timestamp_ms, backs) for each in queues]
        )

    def _find(
        self, queue: QueueView, timestamp_ms: int, backs: Sequence[int]
    ) -> tuple[QueueRange, int]:
        bounds = self._ranges.of(queue)
        low, high = bounds.min_offset, bounds.max_offset
        found = None if backs else first_at(self._window, queue, timestamp_ms, low, high)
        if found is None:
            found = self._first_of_runs(queue, timestamp_ms, _divide(queue, low, high, backs))
        return bounds, found

    def _first_of_runs(
        self, queue: QueueView, timestamp_ms: int, runs: Sequence[tuple[int, int]]
    ) -> int:
        for low, end in runs:
            found = self.first_of_run(queue, timestamp_ms, low, end)
            if found < end:
                return found
        return runs[-1][1]

    def runs(self, queue: QueueView) -> list[tuple[int, int]]:
        """A queue's entries in runs in which store times do not go back, each with its end."""
        bounds = self._ranges.of(queue)
        return _divide(queue, bounds.min_offset, bounds.max_offset, self.back_offsets)

    def first_of_run(self, queue: QueueView, timestamp_ms: int, low: int, high: int) -> int:
        """Find the first entry of a run that was stored at or after a time; its end without one."""
        end = high
        while low < high:
            middle = (low + high) // 2
            probe, stored_ms = self._next_stored(queue, middle, high)
            if stored_ms is None or stored_ms >= timestamp_ms:
                high = middle
            else:
                low = probe + 1
        return self._next_stored(queue, low, end)[0]

    def _next_stored(self, queue: QueueView, start: int, stop: int) -> tuple[int, int | None]:
        """Find the first entry from ``start`` with a readable record, and its store timestamp;
        ``stop`` when there is none."""
        for index in range(start, min(stop, start + UNREADABLE_MAX)):
            entry = queue.entry(index)
            if entry is None or not names_record(entry) or self._ranges.is_coming(entry):
                continue
            try:
                found = self._reads.read(entry.physical_offset, with_body=False)
            except StorageError:
                continue
            return index, found.store_timestamp_ms
        return stop, None


def _divide(queue: QueueView, low: int, high: int, backs: Sequence[int]) -> list[tuple[int, int]]:
    """Divide a queue's entries before the first record at or above each physical offset."""
    cuts = [first_from(queue, back, low, high) for back in backs]
    inner = sorted({cut for cut in cuts if low < cut < high})
    return list(pairwise([low, *inner, high]))
