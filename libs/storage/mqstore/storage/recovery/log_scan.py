"""Reads the log from an offset on to find its end.

Whole records follow one another. Damage ends the log only when nothing whole and newer follows
(docs/formats.md, "What mqstore adds, and stays compatible"). A record is newer when its queue
offset is the next of its queue or later: bytes left over from an earlier cut repeat queue offsets
of their queue.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from mqstore.storage._kernel import Defect, RecordSearch, check_record
from mqstore.storage.codec.record import defect_error
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    BLOCK_SIZE,
    MAGIC_V2,
    QUEUED_TYPES,
    RECORD_FIXED_SIZE,
    RECORD_IPV6_EXTRA_SIZE,
    TRANSACTION_MASK,
    SysFlag,
)
from mqstore.storage.log.defects import unlisted_before
from mqstore.storage.metadata.changed_word import WORD_SIZE, ChangedWord
from mqstore.storage.queues.queue_holes import GAP_MAX
from mqstore.storage.queues.store_times import store_time_at
from mqstore.storage.recovery.changed_blocks import ChangedBlocks
from mqstore.storage.recovery.repairs import RepairPlanner
from mqstore.storage.recovery.report import (
    LISTED_MAX,
    DamagedBlock,
    DamagedRange,
    PlaceTombstone,
    Repair,
    RestoreBytes,
)
from mqstore.storage.recovery.tombstones import QueuePlace
from mqstore.storage.recovery.view import QueueTable, Segment, StoreView
from mqstore.storage.recovery.walk import whole_runs
from mqstore.storage.system.sparse import find_whole

GAPS_MAX: Final = 64
"""Number of remembered gaps of one queue."""
_HEAD: Final = struct.Struct(">4xI4xi4xq8xi")
"""MAGICCODE, QUEUEID, QUEUEOFFSET, SYSFLAG."""
_INT: Final = struct.Struct(">i")
_KNOWN_MAX: Final = 4_096
"""Number of earlier records of which is remembered whether they are whole."""
_NEAR: Final = 64
"""Queue offsets between a record and the last known one of its queue that damage may explain."""
_BODY_LENGTH_POSITION: Final = 84
"""Position of the body length when both hosts are IPv4."""
_BOTH_HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


@dataclass(slots=True)
class ScanResult:
    """The end of the log, and the records and damage before it."""

    end: int
    """Physical offset of the log's end."""
    records: int = 0
    scanned_bytes: int = 0
    last_store_timestamp_ms: int = 0
    repeated: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    damaged_count: int = 0
    damaged_blocks: list[DamagedBlock] = field(default_factory=list)
    damaged_block_count: int = 0
    repairs: list[Repair] = field(default_factory=list)
    """Repairs of the damage."""
    end_reason: str = "nothing follows"


class _Newer(NamedTuple):
    """The records found after a damaged stretch."""

    resume: int
    """The first whole record after it."""
    proof: int
    """A whole and newer record, at or after ``resume``."""


class SeenOffsets:
    """The queue offsets of one queue's records, from the first one seen.

    A record whose queue offset is damaged leaps ahead. The offsets that it skips stay free, so that
    the next records do not count as left over. Only the last few such gaps are remembered.
    """

    def __init__(self, offset: int) -> None:
        self.first = offset
        self._end = offset + 1
        self._gaps: list[tuple[int, int]] = []
        """Unseen ranges (from, to before) below ``_end``, ascending."""

    def has(self, offset: int) -> bool:
        """Whether a record with this offset was seen; False below ``first``."""
        if not self.first <= offset < self._end:
            return False
        return not any(low <= offset < high for low, high in self._gaps)

    def below(self, offset: int) -> int:
        """The lowest free offset of the gap that holds a free one."""
        lows = (low for low, high in self._gaps if low <= offset < high)
        return next(lows, min(offset, self._end))

    def add(self, offset: int) -> None:
        """Note the offset of a record."""
        if offset >= self._end:
            self._gaps.append((self._end, offset))
            self._end = offset + 1
        elif offset < self.first:
            self._gaps.insert(0, (offset + 1, self.first))
            self.first = offset
        else:
            self._split(offset)
        self._gaps = [gap for gap in self._gaps if gap[0] < gap[1]][-GAPS_MAX:]

    def _split(self, offset: int) -> None:
        for number, (low, high) in enumerate(self._gaps):
            if low <= offset < high:
                self._gaps[number : number + 1] = [(low, offset), (offset + 1, high)]
                return


class LogScan:
    """One pass over a store's log. Not for sharing between threads."""

    def __init__(
        self,
        view: StoreView,
        progress: Callable[[int, int], None] | None,
        *,
        ends_at_damage: bool = False,
    ) -> None:
        """With ``ends_at_damage``, damage ends the log whatever follows it."""
        self._view = view
        self._ends_at_damage = ends_at_damage
        self._progress = progress
        self._seen: dict[tuple[bytes, int], SeenOffsets] = {}
        self._queues = QueueTable(view)
        self._repairs = RepairPlanner(self._queues, view.store_format, self._believe)
        self._blocks = ChangedBlocks(None, None, memoryview(b""))
        """Changed blocks of the present segment."""
        self._proof = -1
        self._search = RecordSearch(b"", 0, True)
        """Search in the present segment: damage after damage, the same bytes are searched."""
        self._searched = -1
        """Physical offset where that segment begins."""
        self._is_whole_at = lru_cache(maxsize=_KNOWN_MAX)(self._check_at)
        self._done: dict[int, int] = {}
        """By the begin of a segment, the bytes of those before it that are read."""
        self._total = self._reported = 0
        cut = view.truncation
        self._stop = sys.maxsize if cut is None else cut.offset
        """Physical offset at which the log ends at the latest."""
        self._result = ScanResult(end=0)

    def run(self, start: int) -> ScanResult:
        """Read from physical offset ``start``, where a record or the log's end must be."""
        segments = [s for s in self._view.segments.usable if s.end > start and s.base < self._stop]
        self._result.end = start
        for segment in segments:
            self._done[segment.base] = self._total
            self._total += segment.length
        for number, segment in enumerate(segments):
            self._report(segment.base)
            if not self._segment(
                segment, max(start, segment.base), last=number == len(segments) - 1
            ):
                break
        self._queues.close()
        self._date_first_repairs()
        if self._progress is not None:
            self._progress(self._total, self._total)
        return self._result

    def _report(self, offset: int) -> None:
        """Report the progress up to a physical offset of the segments that are read."""
        if self._progress is None:
            return
        base = offset - offset % self._view.config.mapped_file_size_commit_log
        if base not in self._done:
            return
        done = self._done[base] + offset - base
        if done >= self._reported:
            self._reported = done
            self._progress(done, self._total)

    def _segment(self, segment: Segment, start: int, *, last: bool) -> bool:
        """Read one segment from physical offset ``start``; returns whether the log continues after
        it."""
        with self._view.map_segment(segment) as view:
            readable = self._readable(segment, view)
            self._blocks = ChangedBlocks(self._view.blocks, segment, view)
            self._search, self._searched = RecordSearch(view, segment.base, True), segment.base
            repaired = len(self._result.repairs)
            goes_on = self._walk(segment, readable, start, last=last)
            end = segment.length if goes_on else self._result.end - segment.base
            restored = {
                each.offset
                for each in self._result.repairs[repaired:]
                if isinstance(each, RestoreBytes)
            }
            self._check_blocks(segment, start - segment.base, end, restored)
            self._search, self._searched = RecordSearch(b"", 0, True), -1
            return goes_on

    def _readable(self, segment: Segment, view: memoryview) -> memoryview:
        """The bytes of a segment that are read."""
        return view[: max(0, self._stop - segment.base)]

    def _walk(self, segment: Segment, view: memoryview, start: int, *, last: bool) -> bool:
        result = self._result
        position, result.end = start - segment.base, start
        while True:
            position, defect, size = self._run(segment, view, position)
            result.end = segment.base + position
            if defect == Defect.BLANK or len(view) - position < BLANK_RECORD_SIZE:
                result.end_reason = "a blank record and no segment behind it"
                return not last
            resume = self._resume_after_restored(segment, view, position)
            if resume is None and self._ends_at_damage:
                result.end_reason = _why(defect, result.end)
                return False
            if resume is None:
                resume = self._step_over(segment, view, position, defect, size)
            if resume is None:
                return False
            if resume >= segment.end:
                return True
            position = resume - segment.base

    def _resume_after_restored(
        self, segment: Segment, view: memoryview, position: int
    ) -> int | None:
        """The position after a record that is whole with its changed words restored, or None."""
        words, size = self._blocks.words_of(view, position)
        for word in words:
            self._restore(segment, word, segment.base + position)
        if not size:
            return None
        self._count(1, size, 0)
        return segment.base + position + size

    def _restore(self, segment: Segment, word: ChangedWord, record_offset: int) -> None:
        self._result.repairs.append(
            RestoreBytes(
                offset=segment.base + word.position,
                length=len(word.content),
                content=word.content.hex(),
                record_offset=record_offset,
            )
        )

    def _check_blocks(self, segment: Segment, start: int, end: int, restored: Set[int]) -> None:
        """Check the changed blocks in which every record is whole: one changed word is restored.

        ``restored`` are the physical offsets of the words that already are. A changed block with a
        damaged record needs no repair of its own: the record is replaced.
        """
        result = self._result
        for low, high in self._blocks.ranges(start, end):
            first = segment.base + low - low % BLOCK_SIZE
            if low >= end or segment.base + low - low % WORD_SIZE in restored:
                continue
            if self._is_explained(first, first + BLOCK_SIZE):
                continue
            found = self._blocks.holder(low, end)
            if found is not None:
                self._restore(segment, *found)
                continue
            result.damaged_block_count += 1
            if len(result.damaged_blocks) < LISTED_MAX:
                result.damaged_blocks.append(
                    DamagedBlock(offset=segment.base + low, length=high - low)
                )

    def _is_explained(self, start: int, stop: int) -> bool:
        damaged = self._result.damaged
        return any(each.offset < stop and start < each.offset + each.length for each in damaged)

    def _run(self, segment: Segment, view: memoryview, position: int) -> tuple[int, Defect, int]:
        """Walk whole, newer records; returns (position, defect, size) of the first other one."""
        defect = Defect.NONE
        for run in whole_runs(view, position, len(view), segment.base, verify_body=True):
            for count, start in enumerate(run.starts):
                if not self._is_newer(view, start, segment.base + start):
                    self._count(count, start - position, run.newest_ms)
                    return start, Defect.NONE, check_record(view, start, len(view), -1, False)[1]
            self._count(len(run.starts), run.stop - position, run.newest_ms)
            position, defect = run.stop, run.defect
            self._report(segment.base + position)
        size = check_record(view, position, len(view), segment.base + position, True)[1]
        return position, defect, size

    def _count(self, records: int, length: int, timestamp: int) -> None:
        self._result.records += records
        self._result.scanned_bytes += length
        if records and timestamp:
            self._result.last_store_timestamp_ms = timestamp

    def _is_newer(self, view: memoryview, position: int, offset: int) -> bool:
        """Note a whole record; False when its queue already has its queue offset."""
        place = queue_place(view, position)
        if place is None:
            return True
        if self._is_taken(place, offset):
            return False
        self._note(place)
        return True

    def _is_taken(self, place: QueuePlace, offset: int) -> bool:
        """Whether an earlier record has this queue offset.

        A queue entry that names this very record outweighs the queue offset of another record: no
        checksum protects a queue offset in the log.
        """
        seen = self._seen.get(place[:2])
        if seen is not None and seen.has(place.queue_offset):
            return self._entry_of(place) != offset
        if seen is not None and place.queue_offset >= seen.first:
            return False
        entry = self._entry_of(place)
        return entry is not None and entry < offset and self._stands_at(entry, place)

    def _entry_of(self, place: QueuePlace) -> int | None:
        """The physical offset in the queue's entry of this queue offset, or None."""
        entry = self._queues.get(*place[:2]).entry(place.queue_offset)
        return None if entry is None else entry[0]

    def _note(self, place: QueuePlace) -> None:
        seen = self._seen.get(place[:2])
        if seen is None:
            self._seen[place[:2]] = SeenOffsets(place.queue_offset)
        else:
            seen.add(place.queue_offset)

    def _stands_at(self, offset: int, place: QueuePlace) -> bool:
        """Whether an earlier whole record at ``offset`` belongs to that queue entry."""
        found = self._place_at(offset)
        return found == place and self._is_whole_at(offset)

    def _place_at(self, offset: int) -> QueuePlace | None:
        with self._view_at(offset) as (view, position):
            defect, _ = check_record(view, position, len(view), offset, False)
            return queue_place(view, position) if defect == Defect.NONE else None

    def _check_at(self, offset: int) -> bool:
        with self._view_at(offset) as (view, position):
            return check_record(view, position, len(view), offset, True)[0] == Defect.NONE

    @contextmanager
    def _view_at(self, offset: int) -> Iterator[tuple[memoryview, int]]:
        """The segment that holds a physical offset, and the position in it; no bytes where there is
        none."""
        segment = self._view.segments.at(offset)
        if segment is None:
            yield memoryview(b""), 0
            return
        with self._view.map_segment(segment) as view:
            yield view, offset - segment.base

    def _step_over(
        self, segment: Segment, view: memoryview, position: int, defect: Defect, size: int
    ) -> int | None:
        """Find the next whole record after a damaged one; None where the log ends."""
        offset = segment.base + position
        behind = self._resume_behind(segment, view, position, size)
        if behind is None:
            self._result.end_reason = _why(defect, offset)
            return None
        if defect == Defect.NONE:
            self._result.repeated += 1
            self._count(1, size, 0)
            return offset + size
        # When only the body is wrong, the next record is examined by itself.
        resume = min(behind, offset + size) if size else behind
        self._note_damage(offset, resume - offset, defect)
        self._result.repairs += self._repairs.of(
            segment,
            view,
            (offset, resume),
            why=_why(defect, offset),
            store_timestamp_ms=self._result.last_store_timestamp_ms,
        )
        return resume

    def _resume_behind(
        self, segment: Segment, view: memoryview, position: int, size: int
    ) -> int | None:
        """Find the next whole record after damage, or its segment's end; None when nothing newer
        follows."""
        newer = self._find_newer(segment, view, position, size)
        return None if newer is None else min(newer.resume, segment.end)

    def _date_first_repairs(self) -> None:
        """Give tombstones before the first whole record that record's time, so that searches by
        time stay correct."""
        result = self._result
        undated = [
            (number, each)
            for number, each in enumerate(result.repairs)
            if isinstance(each, PlaceTombstone) and not each.store_timestamp_ms
        ]
        if not undated:
            return
        behind = undated[-1][1].offset + undated[-1][1].length
        found = next(self._whole_records(behind), None)
        time_ms = 0 if found is None else self._store_time(found[0])
        for number, each in undated:
            result.repairs[number] = each.model_copy(update={"store_timestamp_ms": time_ms})

    def _store_time(self, offset: int) -> int:
        """STORETIMESTAMP of a whole record, ms."""
        with self._view_at(offset) as (view, position):
            return store_time_at(view, position) or 0

    def _note_damage(self, offset: int, length: int, defect: Defect) -> None:
        result = self._result
        result.damaged_count += 1
        result.scanned_bytes += length
        if len(result.damaged) < LISTED_MAX:
            result.damaged.append(
                DamagedRange(offset=offset, length=length, defect=_why(defect, offset))
            )

    def _find_newer(
        self, segment: Segment, view: memoryview, position: int, size: int
    ) -> _Newer | None:
        """Find whole and newer records after a damaged one: first where its own size and the queue
        entries point, then at every position (a body may contain a forged record)."""
        offset = segment.base + position
        if size and self._proof >= offset + size:
            return _Newer(offset + size, self._proof)
        if next(self._whole_records(offset + 1), None) is None:
            return None  # as at the end of most logs: no queue need be looked at
        for start in self._likely_starts(segment, view, position, size):
            if (newer := self._sweep(start)) is not None:
                self._proof = newer.proof
                return newer
        return None

    def _likely_starts(
        self, segment: Segment, view: memoryview, position: int, size: int
    ) -> Iterator[int]:
        offset = segment.base + position
        stated = size or self._stated_size(view, position)
        if stated:
            yield offset + stated
        named = self._queues.next_named(offset)
        if named is not None:
            stop = min(named, segment.end) - segment.base
            unlisted = unlisted_before(
                view,
                (position + 1, stop),
                segment.base,
                self._search,
                lambda at: self._is_near(queue_place(view, at)),
            )
            yield named if unlisted is None else segment.base + unlisted
        yield offset + 1

    def _stated_size(self, view: memoryview, position: int) -> int:
        """TOTALSIZE of a damaged record when a whole or a blank record follows it; else 0."""
        if position + 4 > len(view):
            return 0
        total: int = _INT.unpack_from(view, position)[0]
        following = position + total
        if total < RECORD_FIXED_SIZE or following >= len(view):
            return 0
        defect, _ = self._search.check(following, len(view))
        return total if defect in (Defect.NONE, Defect.BLANK) else 0

    def _is_near(self, place: QueuePlace | None) -> bool:
        seen = None if place is None else self._seen.get(place[:2])
        if place is None or seen is None or place.queue_offset < seen.first:
            return False
        free = not seen.has(place.queue_offset)
        return free and place.queue_offset - seen.below(place.queue_offset) <= _NEAR

    def _sweep(self, start: int) -> _Newer | None:
        resume = -1
        for offset, place in self._whole_records(start, self._report):
            resume = offset if resume < 0 else resume
            if offset <= self._proof:
                return _Newer(resume, self._proof)
            if place is not None and not self._is_taken(place, offset):
                return _Newer(resume, offset)
        return None

    def _believe(self, place: QueuePlace, offset: int, certain: bool) -> bool:
        """Whether the queue offset of an unreadable record is possible; noted when it is."""
        seen = self._seen.get(place[:2])
        if not certain:
            if self._is_taken(place, offset):
                return False
            if seen is not None and place.queue_offset > seen.below(place.queue_offset) + GAP_MAX:
                return False
        self._note(place)
        return True

    def _whole_records(
        self, start: int, passed: Callable[[int], None] = lambda _: None
    ) -> Iterator[tuple[int, QueuePlace | None]]:
        """Yield every whole record from ``start`` on that states its own offset; ``passed`` is
        called with offsets that were reached before the first one."""
        found = False

        def note(position: int) -> None:
            if not found:
                passed(base + position)

        for segment in self._view.segments.usable:
            if segment.end <= start:
                continue
            base, is_present = segment.base, segment.base == self._searched
            with self._view.map_segment(segment) as view:
                search = self._search if is_present else RecordSearch(view, base, True)
                position, next_data = max(0, start - base), self._view.next_data(segment)
                while (position := find_whole(search, view, position, next_data, note)) >= 0:
                    found = True
                    yield base + position, queue_place(view, position)
                    size = check_record(view, position, len(view), -1, False)[1]
                    position += max(size, 1)


def queue_place(view: memoryview, position: int) -> QueuePlace | None:
    """The queue entry that a whole record belongs to; None for prepared and rolled back ones."""
    magic, queue_id, queue_offset, sys_flag = _HEAD.unpack_from(view, position)
    if sys_flag & TRANSACTION_MASK not in QUEUED_TYPES:
        return None
    at = position + _BODY_LENGTH_POSITION
    if sys_flag & _BOTH_HOSTS_V6:
        at += RECORD_IPV6_EXTRA_SIZE * (sys_flag & _BOTH_HOSTS_V6).bit_count()
    body_length: int = _INT.unpack_from(view, at)[0]
    at += 4 + max(0, body_length)
    if magic == MAGIC_V2:
        length = view[at] << 8 | view[at + 1]
        at += 2
    else:
        length = view[at]
        at += 1
    return QueuePlace(view[at : at + length].tobytes(), queue_id, queue_offset)


def _why(defect: Defect, offset: int) -> str:
    if defect == Defect.NONE:
        return f"left over from an earlier cut at offset {offset}: its queue offset is taken"
    return str(defect_error(defect, offset))
