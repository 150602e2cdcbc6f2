"""``KeyWindow``: the unique keys of recent messages, and their physical offsets.

Two tables: once the younger one is full (uniqueKeyWindowCount) or old (uniqueKeyWindow), the older
one is dropped and a new one begun. So a key is known for at least as long as the settings say, and
at most for twice that, and as long again for keys from before the opening; memory is at most 86
bytes a key of uniqueKeyWindowCount. Age is elapsed time, independent of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mqstore.storage._kernel import Defect, KeyTable, KeyTables, Placement
from mqstore.storage.codec.message_id import GENERATED_PREFIX
from mqstore.storage.config import StoreConfig

RUN_RECORDS: Final = 50_000
"""Records added between two checks of whether the younger table is full."""


class KeyWindow(KeyTables):
    """Physical offsets by digest (``_kernel.key_digests``). For one thread at a time."""

    def __init__(self, config: StoreConfig, monotonic: Callable[[], float]) -> None:
        """``monotonic`` returns seconds."""
        self.limit(config.unique_key_window_count, config.unique_key_window / 1000)
        self._monotonic = monotonic

    @property
    def count(self) -> int:
        """Number of known keys."""
        return self.younger.count + self.older.count

    @property
    def memory_size(self) -> int:
        """Memory in bytes."""
        return self.younger.memory_size + self.older.memory_size

    def find(self, digests: bytes) -> list[int] | None:
        """The offset of each digest, -1 where it is not known; None when none of them is."""
        found = self.younger.find(digests)
        older = self.older.find(digests)
        if older is None or found is None:
            return found or older
        return [new if new >= 0 else old for new, old in zip(found, older, strict=True)]

    def add(self, digests: bytes, placements: Sequence[Placement]) -> None:
        """Add stored messages."""
        self.younger.add(digests, placements)
        self._turn(self._monotonic())

    def add_run(self, view: memoryview, position: int, end: int, base: int) -> tuple[Defect, int]:
        """Add the clients' keys of records from ``position`` on; returns why and where it ended."""
        records, now = RUN_RECORDS, self._monotonic()
        defect = Defect.NONE
        while defect is Defect.NONE and records == RUN_RECORDS:
            defect, position, records, _ = self.younger.add_run(
                view, position, end, base, made_here=GENERATED_PREFIX, max_records=RUN_RECORDS
            )
            self._turn(now)
        return defect, position

    def _turn(self, now: float) -> None:
        if self.since is None:
            self.since = now
        if now - self.since >= self.span_s or self.younger.count >= self.count_max:
            self.older, self.younger = self.younger, KeyTable()
            self.since = None
