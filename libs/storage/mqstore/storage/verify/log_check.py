"""Verifies the commit log from its first record to its end, with each record's queue and index
entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

from mqstore.storage._kernel import Defect, check_record
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Blank, Record, defect_error
from mqstore.storage.inventory import RecordSurvey
from mqstore.storage.layout import BLANK_RECORD_SIZE
from mqstore.storage.progress import Progress
from mqstore.storage.recovery.view import Segment
from mqstore.storage.recovery.walk import Damage, Run, walk
from mqstore.storage.system.sparse import last_nonzero
from mqstore.storage.topic_names import is_safe_path
from mqstore.storage.verify.block_check import BlockCheck
from mqstore.storage.verify.broker import refuses_file
from mqstore.storage.verify.finding import REMOVES, Finding, Kind
from mqstore.storage.verify.index_check import IndexCheck
from mqstore.storage.verify.pop_check import PopCheck
from mqstore.storage.verify.queue_check import QueueCheck
from mqstore.storage.verify.store_at_rest import StoreAtRest

_KINDS: Final = {
    Defect.BODY_CORRUPT: Kind.RECORD_BODY,
    Defect.MISPLACED: Kind.RECORD_ODD,
    Defect.HOST_INVALID: Kind.RECORD_ODD,
    Defect.TOPIC_INVALID: Kind.RECORD_ODD,
    Defect.PROPERTIES_MALFORMED: Kind.RECORD_ODD,
    Defect.CRC_MISMATCH: Kind.RECORD_ODD,
}
"""All other defects mean that there is no whole record."""
_DECODABLE: Final = frozenset({Defect.BODY_CORRUPT, Defect.CRC_MISMATCH})


class LogCheck:
    """One pass; ``findings`` is used once."""

    def __init__(
        self, store: StoreAtRest, queues: QueueCheck, index: IndexCheck, progress: Progress
    ) -> None:
        self.records = 0
        self.newest_ms = 0
        """Greatest STORETIMESTAMP seen."""
        self._store = store
        self._queues = queues
        self._index = index
        self._pop = PopCheck(store)
        self._states = RecordSurvey()
        self._progress = progress

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of the log."""
        store = self._store
        expected = store.min_offset
        for segment in store.view.segments.usable:
            if segment.base > expected and expected < store.end:
                what = f"no segment from offset {expected} up to this one"
                yield self._finding(Kind.LOG_GAP, segment, 0, what)
            expected = segment.base + store.config.mapped_file_size_commit_log
            with store.view.map_segment(segment) as data:
                end = max(0, min(len(data), store.end - segment.base))
                blocks = BlockCheck(store, segment, data, end)
                yield from self._segment(segment, data, end, blocks)
                for changed in blocks.unexplained():
                    place = changed.start
                    yield self._finding(Kind.BLOCK_CHANGED, segment, place, str(changed))
                if not store.is_live:
                    yield from self._tail(segment, data, end)
        yield from self._lengths()
        yield from self._queues.missing()
        yield from self._index.rest()
        yield from self._pop.findings()
        for offset, each in self._states.found():
            does = self._store.broker.predict(Kind.STATE_NAMED)
            yield Finding(Kind.STATE_NAMED, "commitlog", str(each), does, offset=offset)

    def _lengths(self) -> Iterator[Finding]:
        size = self._store.config.mapped_file_size_commit_log
        segments = self._store.view.segments
        odd = [s for s in segments.usable[-1:] if s.length != size]
        for segment in (*segments.misfits, *odd):
            what = f"{segment.length} bytes where {size} are due"
            yield self._finding(Kind.SEGMENT_LENGTH, segment, 0, what)
        for segment in segments.empty:
            what = "no bytes: a halt came while it was made"
            is_last = segment is segments.empty[-1]
            name = segment.path.name
            stops = refuses_file(self._store.format, name, 0, size, is_last=is_last)
            finding = self._finding(Kind.SEGMENT_LENGTH, segment, 0, what)
            yield finding if stops else replace(finding, broker=REMOVES)

    def _segment(
        self, segment: Segment, data: memoryview, end: int, blocks: BlockCheck
    ) -> Iterator[Finding]:
        store = self._store
        for found in walk(data, 0, end, segment.base, verify_body=True, queues=self._queues):
            if isinstance(found, Blank):
                yield from self._blank(segment, data, found)
            elif isinstance(found, Run):
                done = segment.base + found.starts[0] - store.min_offset
                self._progress("log", done, store.end - store.min_offset)
                self.newest_ms = max(self.newest_ms, found.newest_ms)
                for start, following in pairwise([*found.starts, found.stop]):
                    blocks.note(start, following)
                    yield from self._whole(data, start, end, segment)
            else:
                yield from self._defect(segment, data, end, found)
                blocks.note(found.position, found.stop, is_whole=False)

    def _whole(
        self, data: memoryview, position: int, end: int, segment: Segment
    ) -> Iterator[Finding]:
        offset = segment.base + position
        found = record.decode(
            data, position, end, physical_offset=offset, verify_body=False, with_body=False
        )
        self.records += 1
        self._states.note(offset, found.sys_flag, found.properties or ())
        if not is_safe_path(found.topic):
            what = f"its topic {found.topic!r} may not become a directory"
            yield self._finding(Kind.RECORD_ODD, segment, position, what)
        if found.is_tombstone:
            what = "a tombstone: the bytes that stood here are in quarantine"
            yield self._finding(Kind.TOMBSTONE, segment, position, what)
        if self._pop.concerns(found):
            self._pop.take(
                record.decode(data, position, end, physical_offset=offset, verify_body=False)
            )
        yield from self._check_queues_and_index(found, is_whole=True)

    def _check_queues_and_index(self, found: Record, *, is_whole: bool) -> Iterator[Finding]:
        yield from self._queues.log(found, is_whole=is_whole)
        yield from self._index.log(found)

    def _blank(self, segment: Segment, data: memoryview, found: Blank) -> Iterator[Finding]:
        position = found.offset - segment.base
        if found.size != len(data) - position:
            what = f"a blank record of {found.size} bytes where {len(data) - position} are left"
            yield self._finding(Kind.RECORD_ODD, segment, position, what)

    def _defect(
        self, segment: Segment, data: memoryview, end: int, damage: Damage
    ) -> Iterator[Finding]:
        position, defect = damage.position, damage.defect
        offset = segment.base + position
        kind = _KINDS.get(defect, Kind.RECORD_BROKEN)
        found: Record | None = None
        if defect in _DECODABLE:
            found = record.decode(
                data, position, end, physical_offset=offset, verify_body=False, with_body=False
            )
        yield Finding(
            kind=kind,
            file=self._store.name_of(segment.path),
            what=str(defect_error(defect, offset)),
            broker=self._store.broker.predict(kind, offset),
            offset=position,
            physical_offset=offset,
            topic=None if found is None else found.topic,
            queue_id=None if found is None else found.queue_id,
            index=None if found is None else found.queue_offset,
        )
        if found is not None:
            yield from self._check_queues_and_index(found, is_whole=False)

    def _tail(self, segment: Segment, data: memoryview, end: int) -> Iterator[Finding]:
        """Check for bytes after the log's end, except after a blank record."""
        if segment.end <= self._store.end:
            return
        used = last_nonzero(data, end, partial(self._store.seams.files.next_data, segment.path))
        if used > end:
            why = self._why_tail(segment, data, end)
            what = f"{used - end} bytes behind the log's end ({why}); recovery cuts them"
            yield self._finding(Kind.LOG_TAIL, segment, end, what)

    def _why_tail(self, segment: Segment, data: memoryview, end: int) -> str:
        if len(data) - end < BLANK_RECORD_SIZE or (end == 0 and segment.base > self._store.end):
            return "a segment that nothing leads to"
        defect, _ = check_record(data, end, len(data), segment.base + end, True)
        if defect == Defect.BLANK:
            return "a blank record that leads to no segment"
        if defect == Defect.NONE:
            return "left over from before an earlier cut"
        return defect.name.lower().replace("_", " ")

    def _finding(self, kind: Kind, segment: Segment, position: int, what: str) -> Finding:
        offset = segment.base + position
        return Finding(
            kind=kind,
            file=self._store.name_of(segment.path),
            what=what,
            broker=self._store.broker.predict(kind, offset),
            offset=position,
            physical_offset=offset,
        )
