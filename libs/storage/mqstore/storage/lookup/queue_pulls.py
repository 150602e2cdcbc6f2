"""Pulls from a queue as RocketMQ does, with its statuses and filters.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from mqstore.storage.errors import QueueUnknown
from mqstore.storage.layout import EXT_ADDRESS_MAX, QUEUE_ENTRY_SIZE
from mqstore.storage.lookup.answers import Pull, PullStatus, Slices
from mqstore.storage.lookup.lookups import ENTRIES_PER_CALL_MAX, A, Lookups
from mqstore.storage.lookup.pull_filter import PullFilter, UnitRun
from mqstore.storage.lookup.views import QueueView

_RUN_MAX: Final = 256
"""Records read at a time when a filter needs the messages."""


class Queues(Protocol):
    """The queues of a store."""

    def get(self, topic: str, queue_id: int) -> QueueView | None:
        """The queue, or None."""

    def known(self, topic: str, queue_id: int) -> QueueView | None:
        """The queue if it was used before, or None."""


class QueuePulls:
    """Pulls over one process's view of a store."""

    def __init__(self, lookups: Lookups, queues: Queues) -> None:
        self._lookups = lookups
        self._queues = queues

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int | None,
        *,
        count: int,
        max_bytes: int,
        wanted: PullFilter | None = None,
    ) -> Pull:
        """Read messages from an offset, or from the queue's first one.

        As ``Lookups.records``, except: below the queue's minimum the status is OFFSET_TOO_SMALL,
        with the minimum as next offset; if the queue never had an entry, NO_MESSAGE_IN_QUEUE. With
        a filter, ENTRIES_PER_CALL_MAX entries, or its ``evaluated_max`` messages, are examined
        before the status is NO_MATCHED_MESSAGE.
        """
        read, read_consistently = self._lookups.records, self._lookups.read_consistently
        return read_consistently(
            self._answer, Pull, read, topic, queue_id, offset, count, max_bytes, wanted
        )

    def slices(
        self,
        topic: str,
        queue_id: int,
        offset: int | None,
        *,
        count: int,
        max_bytes: int,
        wanted: PullFilter | None = None,
    ) -> Slices:
        """Read as ``pull``, as bytes of the log."""
        read, read_consistently = self._lookups.slices, self._lookups.read_consistently
        return read_consistently(
            self._answer, Slices, read, topic, queue_id, offset, count, max_bytes, wanted
        )

    def end_of(self, topic: str, queue_id: int) -> int:
        """The end of the part of a queue that readers see; 0 without the queue."""
        try:
            return self._lookups.queue_range(topic, queue_id).max_offset
        except QueueUnknown:
            return 0

    def in_memory(
        self,
        kind: type[A],
        topic: str,
        queue_id: int,
        offset: int,
        *,
        count: int,
        max_bytes: int,
    ) -> A | None:
        """Answer a pull without a filter when that takes no disk read; else None.

        The answer has messages, or states that the queue ends at the offset. For queues that were
        pulled from recently: the pages at their ends are assumed to be in memory.
        """
        queue = self._queues.known(topic, queue_id)
        if queue is None:
            return None
        if offset == queue.max_index > 0:
            return self._lookups.read_consistently(self._at_end, kind, queue, offset)
        return self._lookups.in_memory(kind, queue, offset, count, max_bytes)

    def _at_end(self, kind: type[A], queue: QueueView, offset: int) -> A | None:
        if offset != (high := queue.max_index):
            return None
        return kind(PullStatus.OFFSET_OVERFLOW_ONE, [], [], high, queue.min_index, high)

    def _answer(
        self,
        kind: type[A],
        read: Callable[[str, int, int, int, int], A],
        topic: str,
        queue_id: int,
        offset: int | None,
        count: int,
        max_bytes: int,
        wanted: PullFilter | None,
    ) -> A:
        bounds = self._lookups.queue_range(topic, queue_id)
        low, high = bounds.min_offset, bounds.max_offset
        if high == 0:
            return kind(PullStatus.NO_MESSAGE_IN_QUEUE, [], [], 0, 0, 0)
        if offset is not None and offset < low:
            return kind(PullStatus.OFFSET_TOO_SMALL, [], [], low, low, high)
        start = low if offset is None else offset
        if wanted is None or start >= high:
            return read(topic, queue_id, start, count, max_bytes)
        answer = kind(PullStatus.NO_MATCHED_MESSAGE, [], [], start, low, high)
        self._fill(answer, topic, queue_id, count, max_bytes, wanted)
        if len(answer):
            answer.status = PullStatus.FOUND
        return answer

    def _fill(
        self,
        answer: A,
        topic: str,
        queue_id: int,
        count: int,
        max_bytes: int,
        wanted: PullFilter,
    ) -> None:
        stop = min(answer.next_offset + ENTRIES_PER_CALL_MAX, answer.max_offset)
        run, size, evaluable = 1, 0, wanted.evaluated_max
        while size < max_bytes and (left := count - len(answer)) > len(answer.unreadable):
            if (queue := self._queues.get(topic, queue_id)) is not None and wanted.tags is not None:
                left -= len(answer.unreadable)
                size, is_full = self._lookups.add_tagged(
                    answer, wanted.tags, queue, stop, left, size, max_bytes
                )
                if is_full or answer.next_offset >= stop:
                    return
            passed = self._count_unwanted(topic, queue_id, answer.next_offset, stop, wanted)
            answer.next_offset += passed
            if answer.next_offset >= stop or not evaluable:
                return
            run = 1 if passed else min(2 * run, left, stop - answer.next_offset, _RUN_MAX)
            run = min(run, evaluable)
            found = self._lookups.records(
                topic, queue_id, answer.next_offset, run, max(1, max_bytes - size)
            )
            if found.next_offset <= answer.next_offset:
                return  # the next record is not complete yet
            evaluable -= len(found.records)
            matching = [each for each in found.records if wanted.matches(each)]
            size += sum(each.size for each in matching)
            for each in matching:
                answer.add(each)
            answer.unreadable += found.unreadable
            answer.next_offset = found.next_offset

    def _count_unwanted(
        self, topic: str, queue_id: int, start: int, stop: int, wanted: PullFilter
    ) -> int:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        at, stop = start, min(stop, queue.max_index)
        units: UnitRun | None = None
        while at < stop and (place := queue.block(at)) is not None:
            file, position = place
            there = min((len(file) - position) // QUEUE_ENTRY_SIZE, stop - at)
            passed = wanted.count_unwanted(file, position, there, units)
            at += passed
            if there == 0 or (passed < there and not (units := _units_of(queue, at, units))):
                break
        return at - start


def _units_of(queue: QueueView, index: int, known: UnitRun | None) -> UnitRun | None:
    """The file of units that holds an entry's unit; None where there is none, or it is
    ``known``."""
    entry = queue.entry(index)
    if entry is None or entry.tags_code > EXT_ADDRESS_MAX:
        return None
    if known is not None and known.holds(entry.tags_code):
        return None
    found = queue.units(entry.tags_code)
    return None if found is None else UnitRun(*found)
