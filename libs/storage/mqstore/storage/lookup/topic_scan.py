"""Scans a topic's messages by store time, over all its queues, merged in the order of the log.

Queue entries alone give the order; only records that join the answer are read. The position of a
scan is therefore one physical offset, for any number of queues. A record's place in time is found
by binary search, as in RocketMQ, in each run of a queue in which times do not go back: a clock step
back that we recorded begins the next run. Around a step back that a broker did not record, records
may be missed.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from mqstore.storage.codec import cursors
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordExpired, StorageError, StoreNotOpen
from mqstore.storage.lookup.answers import KeyAnswer, ScanRange, Unreadable
from mqstore.storage.lookup.hidden_messages import is_for
from mqstore.storage.lookup.lookups import CANDIDATES_PER_CALL_MAX, TIME_MAX, Lookups
from mqstore.storage.lookup.views import Bounds, LogView, QueueView, first_from, names_record


class TopicQueues(Protocol):
    """The queues of a store by topic."""

    def of_topic(self, topic: str) -> Iterable[QueueView]:
        """The queues of one topic."""


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """A topic and a range of store times, both ends included; ``hidden`` are the topics in which
    messages for this one wait."""

    topic: str
    from_ms: int = 0
    to_ms: int = TIME_MAX
    newest_first: bool = True
    hidden: tuple[str, ...] = ()

    def accepts(self, found: Record) -> bool:
        """Whether the record matches."""
        if not self.from_ms <= found.store_timestamp_ms <= self.to_ms:
            return False
        return is_for(found, self.topic)

    def is_over(self, found: Record) -> bool:
        """Whether no later record of its queue can be within the times."""
        if self.newest_first:
            return found.store_timestamp_ms < self.from_ms
        return found.store_timestamp_ms > self.to_ms


@dataclass(slots=True)
class _Answer:
    records: list[Record] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    size: int = 0
    examined: int = 0

    def is_full(self, limit: int, max_bytes: int) -> bool:
        """Whether the answer has reached a limit."""
        count = len(self.records) + len(self.unreadable)
        return count >= limit or self.size >= max_bytes or self.examined >= CANDIDATES_PER_CALL_MAX


class TopicScans:
    """Scans over one process's view of a store."""

    def __init__(self, lookups: Lookups, log: LogView, queues: TopicQueues, bounds: Bounds) -> None:
        self._lookups = lookups
        self._log = log
        self._queues = queues
        self._bounds = bounds

    def scan(
        self, query: TopicQuery, *, limit: int, max_bytes: int, cursor: str | None = None
    ) -> KeyAnswer:
        """Find at most ``limit`` messages and, after the first, about ``max_bytes`` of them.

        ``cursor`` is that of an earlier answer to the same query; ``complete`` says that the
        answers have everything in the range below ``scanned.max_offset``, the log's end. Raises
        CursorError, StoreNotOpen, and RecordExpired as ``require_unexpired``.
        """
        start = None if cursor is None else cursors.decode(cursor, repr(query))
        return self.scan_from(query, start, limit=limit, max_bytes=max_bytes)

    def scan_from(
        self, query: TopicQuery, start: int | None, *, limit: int, max_bytes: int
    ) -> KeyAnswer:
        """Scan from a physical offset: up from there, or (newest first) down from below it."""
        answer = self._lookups.read_consistently(self._scan, query, start, limit, max_bytes)
        self.require_unexpired(query, start)
        return answer

    def require_unexpired(self, query: TopicQuery, start: int | None) -> None:
        """Raise RecordExpired when the first record of ``scan_from`` may have expired, so that
        there would be a gap."""
        minimum = self._log.min_offset
        if start is not None and start < minimum and not query.newest_first:
            raise RecordExpired(
                f"this goes on at offset {start}, and the log begins at {minimum} now: what was "
                "between has expired; begin anew, with a time"
            )

    def _scan(self, query: TopicQuery, start: int | None, limit: int, max_bytes: int) -> KeyAnswer:
        # The end is read before the dispatched offset, which has mostly reached it by then.
        minimum, end = self._log.min_offset, self._log.max_offset
        dispatched = self._bounds.dispatched_offset
        answer = _Answer()
        following: int | None = None
        for offset, walk in self._merge(query, start, dispatched):
            if answer.is_full(limit, max_bytes):
                following = offset + 1 if query.newest_first else offset
                break
            answer.examined += 1
            self._judge(query, offset, walk, answer)
        return KeyAnswer(
            answer.records,
            answer.unreadable,
            None if following is None else cursors.encode(following, repr(query)),
            following is None and dispatched >= end,
            ScanRange(query.from_ms, query.to_ms, answer.examined, minimum, dispatched),
        )

    def _judge(self, query: TopicQuery, offset: int, walk: _Walk, answer: _Answer) -> None:
        try:
            found = self._lookups.by_physical_offset(offset)
        except RecordExpired:
            return
        except StoreNotOpen:
            raise
        except StorageError as error:
            answer.unreadable.append(Unreadable(offset, error, walk.index))
            return
        walk.is_over = not walk.in_runs and query.is_over(found)
        if query.accepts(found):
            answer.records.append(found)
            answer.size += found.size

    def _merge(
        self, query: TopicQuery, start: int | None, dispatched: int
    ) -> Iterator[tuple[int, _Walk]]:
        """Yield physical offsets in the requested order, each once, with the walk of each."""
        step = -1 if query.newest_first else 1
        heap = [
            (step * offset, number, walk)
            for number, walk in enumerate(self._walks(query, start, dispatched))
            if (offset := walk.next()) is not None
        ]
        heapq.heapify(heap)
        last = None
        while heap:
            key, number, walk = heap[0]
            if key != last:
                yield step * key, walk
            last = key
            following = None if walk.is_over else walk.next()
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (step * following, number, walk))

    def _walks(self, query: TopicQuery, start: int | None, dispatched: int) -> Iterator[_Walk]:
        for topic in (query.topic, *query.hidden):
            for queue in self._queues.of_topic(topic):
                yield self._walk(query, queue, start, dispatched)

    def _walk(
        self, query: TopicQuery, queue: QueueView, start: int | None, dispatched: int
    ) -> _Walk:
        runs = self._lookups.times.runs(queue)
        if len(runs) > 1 and (query.from_ms > 0 or query.to_ms < TIME_MAX):
            return self._walk_runs(query, queue, start, dispatched, runs)
        high = queue.max_index
        low = min(queue.min_index, high)
        if query.newest_first:
            bound = dispatched if start is None else min(start, dispatched)
            stop = first_from(queue, bound, low, high)
            if start is None and query.to_ms < TIME_MAX and low < stop:
                stop = min(stop, self._first_at(queue, query.to_ms + 1))
            return _Walk(queue, range(stop - 1, low - 1, -1))
        stop = first_from(queue, dispatched, low, high)
        first = low
        if start is not None:
            first = first_from(queue, start, low, stop)
        elif query.from_ms > 0 and low < stop:
            first = self._first_at(queue, query.from_ms)
        return _Walk(queue, range(first, stop))

    def _walk_runs(
        self,
        query: TopicQuery,
        queue: QueueView,
        start: int | None,
        dispatched: int,
        runs: list[tuple[int, int]],
    ) -> _Walk:
        """Walk exactly the entries of each run that are within the times."""
        low, high = runs[0][0], runs[-1][1]
        above = low if start is None or query.newest_first else first_from(queue, start, low, high)
        bound = dispatched if start is None or not query.newest_first else min(start, dispatched)
        below = first_from(queue, bound, low, high)
        ranges = []
        for first, stop in runs:
            begin = self._lookups.times.first_of_run(queue, query.from_ms, first, stop)
            end = stop
            if query.to_ms < TIME_MAX:
                end = self._lookups.times.first_of_run(queue, query.to_ms + 1, first, stop)
            ranges.append(range(max(begin, above), min(end, below)))
        if query.newest_first:
            ranges = [each[::-1] for each in reversed(ranges)]
        return _Walk(queue, chain.from_iterable(ranges), in_runs=True)

    def _first_at(self, queue: QueueView, time_ms: int) -> int:
        return self._lookups.offset_by_time(queue.topic, queue.queue_id, time_ms)


class _Walk:
    """The entries of one queue that name a record, in ascending or descending order."""

    def __init__(self, queue: QueueView, indexes: Iterable[int], *, in_runs: bool = False) -> None:
        """``in_runs``: times go back between the runs, so that no single time ends the walk."""
        self.in_runs = in_runs
        self._queue = queue
        self._left = iter(indexes)
        self.index = 0
        """Queue offset of the last entry that ``next`` returned."""
        self.is_over = False
        """Set by the reader of its records: no later entry can match."""

    def next(self) -> int | None:
        """The next record's physical offset, or None."""
        for index in self._left:
            entry = self._queue.entry(index)
            if entry is not None and names_record(entry):
                self.index = index
                return entry.physical_offset
        return None
