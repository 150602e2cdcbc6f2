"""Finds the index items of the log by ranges: the same items as dispatch, in its order.

Several processes scan ranges of one segment each. The end of a range is the start of the next one,
unless damage leads from one into the other, which ``Chunk.end`` shows; the planner then scans the
whole segment at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.storage._kernel import Defect, IndexItems, Stop, check_record
from mqstore.storage.codec import record as records
from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordError
from mqstore.storage.index.service import index_keys_of
from mqstore.storage.layout import SysFlag
from mqstore.storage.log.defects import (
    DamageSearch,
    Queues,
    Stretch,
    placeable_record,
    resume_after,
)

CHUNK_RECORDS: Final = 16_384
"""Records whose items are gathered at a time."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The item counts of neighbouring records."""

    start: int
    """Physical offset of the first record."""
    end: int
    """Physical offset of the next record."""
    records: int
    items: int
    before_last: int
    """Items of all records but the last one."""


class IndexScan:
    """One pass over a part of one segment. For one thread."""

    def __init__(
        self, view: memoryview, base: int, named: Queues, *, parts: int, slots: int, tags: bool
    ) -> None:
        """``view`` is the readable part of the segment, beginning at physical offset ``base``."""
        self._view = view
        self._base = base
        self._named = named
        self._tags = tags
        self._items = IndexItems(parts, slots, tags)
        self._searches = DamageSearch()

    def chunks(
        self, start: int, stop: int, records: int = CHUNK_RECORDS
    ) -> Iterator[tuple[Chunk, list[bytes]]]:
        """Yield the items, by part, of all records that begin from ``start`` to before ``stop``."""
        while start < stop:
            end = start
            while end < stop and self._items.records < records:
                end = self._step(end, stop, records)
            found = self._items
            chunk = Chunk(start, end, found.records, found.items, found.before_last)
            yield chunk, found.take()
            start = end

    def _step(self, offset: int, stop: int, records: int) -> int:
        base = self._base
        why, at = self._items.add(self._view, offset - base, stop - base, base, records)
        if why is Stop.END or why is Stop.LIMIT:
            return base + at
        if why is Stop.BLANK:
            return base + len(self._view)
        return self._scan_one(Stretch(self._view, at, len(self._view), base))

    def _scan_one(self, stretch: Stretch) -> int:
        """Scan the record at which the kernel stopped; returns the position of the next one."""
        view, at, offset = stretch.view, stretch.position, stretch.offset
        found: Record | None
        try:
            found = records.decode(
                view, at, stretch.end, physical_offset=offset, verify_body=False, with_body=False
            )
        except RecordError:
            if check_record(view, at, stretch.end, offset, False)[0] is Defect.BLANK:
                return stretch.base + stretch.end
            found = placeable_record(stretch)
        if found is None:
            return stretch.base + resume_after(stretch, self._named, self._searches).position
        self._add(found)
        return offset + found.size

    def _add(self, found: Record) -> None:
        is_rollback = found.sys_flag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_ROLLBACK
        keys = [] if is_rollback else index_keys_of(found, tags=self._tags)
        self._items.add_record(
            map(index_hash, keys), found.physical_offset, found.store_timestamp_ms
        )
