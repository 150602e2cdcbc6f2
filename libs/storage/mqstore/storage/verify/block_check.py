"""The log against our block checksums, and which records are where it has changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mqstore.storage.metadata.block_files import damage_in
from mqstore.storage.recovery.view import Segment
from mqstore.storage.verify.store_at_rest import StoreAtRest

NAMED_MAX: Final = 20
"""Records of one damaged place that a finding names."""


@dataclass(slots=True)
class Changed:
    """All that changed in one block lies between these positions of its segment."""

    start: int
    stop: int
    records: list[int] = field(default_factory=list)
    """Physical offsets of the first records that it touches."""
    count: int = 0
    is_explained: bool = False
    """All of it lies in one record that shows its damage itself."""

    def __str__(self) -> str:
        where = f"{self.stop - self.start} bytes are not those that were written"
        if not self.count:
            return f"{where}; they touch no record"
        named = ", ".join(map(str, self.records))
        more = self.count - len(self.records)
        rest = f" and {more} more" if more else ""
        return f"{where}; mqstore refuses the records at {named}{rest}"


class BlockCheck:
    """One segment's blocks. Memory is bounded by how many of them are damaged."""

    def __init__(self, store: StoreAtRest, segment: Segment, data: memoryview, end: int) -> None:
        self._changed = list(_changed(store, segment, data, end))
        self._base = segment.base
        self._next = 0
        """The first that a record behind those noted may touch."""

    def note(self, position: int, stop: int, *, is_whole: bool = True) -> None:
        """A record stands there, or what is left of one; to be called in their order."""
        while self._next < len(self._changed) and self._changed[self._next].stop <= position:
            self._next += 1
        for changed in islice(self._changed, self._next, None):
            if changed.start >= stop:
                return
            if not is_whole and position <= changed.start and changed.stop <= stop:
                changed.is_explained = True
            changed.count += 1
            if len(changed.records) < NAMED_MAX:
                changed.records.append(self._base + position)

    def unexplained(self) -> list[Changed]:
        """What no record shows itself, by position, once every record was noted."""
        return [changed for changed in self._changed if not changed.is_explained]


def _changed(store: StoreAtRest, segment: Segment, data: memoryview, end: int) -> Iterator[Changed]:
    blocks = store.view.blocks
    entries = None if blocks is None else blocks.entries(segment.base)
    if entries is not None:
        for start, stop in damage_in(data, entries, segment.base, 0, end):
            yield Changed(start, stop)
