"""Compares the log with our block checksums, and names the records in changed blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mqstore.storage.metadata.block_files import damage_in
from mqstore.storage.recovery.view import Segment
from mqstore.storage.verify.store_at_rest import StoreAtRest

NAMED_MAX: Final = 20
"""Maximum number of records that a finding names."""


@dataclass(slots=True)
class ChangedRange:
    """The positions of a segment between which one block was changed."""

    start: int
    stop: int
    records: list[int] = field(default_factory=list)
    """Physical offsets of the first records that the range touches."""
    count: int = 0
    is_explained: bool = False
    """Whether the whole range lies in one record that shows the damage itself."""

    def __str__(self) -> str:
        where = f"{self.stop - self.start} bytes are not those that were written"
        if not self.count:
            return f"{where}; they touch no record"
        named = ", ".join(map(str, self.records))
        more = self.count - len(self.records)
        rest = f" and {more} more" if more else ""
        return f"{where}; mqstore refuses the records at {named}{rest}"


class BlockCheck:
    """The blocks of one segment. Memory is bounded by the number of damaged ones."""

    def __init__(self, store: StoreAtRest, segment: Segment, data: memoryview, end: int) -> None:
        self._changed_ranges = list(_changed_ranges(store, segment, data, end))
        self._base = segment.base
        self._next = 0
        """The first range that the next records may touch."""

    def note(self, position: int, stop: int, *, is_whole: bool = True) -> None:
        """Note a whole or damaged record; to be called in the order of the log."""
        while (
            self._next < len(self._changed_ranges)
            and self._changed_ranges[self._next].stop <= position
        ):
            self._next += 1
        for changed in islice(self._changed_ranges, self._next, None):
            if changed.start >= stop:
                return
            if not is_whole and position <= changed.start and changed.stop <= stop:
                changed.is_explained = True
            changed.count += 1
            if len(changed.records) < NAMED_MAX:
                changed.records.append(self._base + position)

    def unexplained(self) -> list[ChangedRange]:
        """The ranges that no record shows itself, by position, once every record was noted."""
        return [changed for changed in self._changed_ranges if not changed.is_explained]


def _changed_ranges(
    store: StoreAtRest, segment: Segment, data: memoryview, end: int
) -> Iterator[ChangedRange]:
    blocks = store.view.blocks
    entries = None if blocks is None else blocks.entries(segment.base)
    if entries is not None:
        for start, stop in damage_in(data, entries, segment.base, 0, end):
            yield ChangedRange(start, stop)
