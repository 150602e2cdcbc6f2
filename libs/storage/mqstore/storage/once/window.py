"""Which unique keys were put lately, and where their records stand.

Two tables: once the younger one is full (uniqueKeyWindowCount) or old (uniqueKeyWindow), the older
one is dropped and a new one begun. So a key is known for at least as long as the settings say,
and at most for twice that; memory is at most 86 bytes a key of uniqueKeyWindowCount.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqstore.storage._kernel import Defect, KeyTable, Placement
from mqstore.storage.codec.message_id import GENERATED_PREFIX
from mqstore.storage.config import StoreConfig

RUN_RECORDS: Final = 50_000
"""Records taken over between two looks at whether the younger table is full."""


class KeyWindow:
    """Physical offsets by digest (``_kernel.key_digests``). For one thread at a time."""

    def __init__(self, config: StoreConfig) -> None:
        self._count_max = config.unique_key_window_count
        self._span_ms = config.unique_key_window
        self._younger, self._older = KeyTable(), KeyTable()
        self._since_ms = 0
        """STORETIMESTAMP of the younger table's first message."""
        self._newest_ms = 0
        """Of all; what is added may be a repeat of an older one."""

    @property
    def count(self) -> int:
        """Keys known."""
        return self._younger.count + self._older.count

    @property
    def memory_size(self) -> int:
        """Bytes."""
        return self._younger.memory_size + self._older.memory_size

    def find(self, digests: bytes) -> list[int] | None:
        """The offset of each, -1 where it is not known; None when none of them is."""
        found = self._younger.find(digests)
        older = self._older.find(digests)
        if older is None or found is None:
            return found or older
        return [new if new >= 0 else old for new, old in zip(found, older, strict=True)]

    def add(self, digests: bytes, placements: Sequence[Placement]) -> None:
        """These were put."""
        self._younger.add(digests, placements)
        self._turn(placements[-1].store_timestamp_ms)

    def add_run(self, view: memoryview, position: int, end: int, base: int) -> tuple[Defect, int]:
        """Take over what clients put from ``position`` on; why and where it ended."""
        records = RUN_RECORDS
        defect = Defect.NONE
        while defect is Defect.NONE and records == RUN_RECORDS:
            defect, position, records, store_ms = self._younger.add_run(
                view, position, end, base, made_here=GENERATED_PREFIX, max_records=RUN_RECORDS
            )
            self._turn(store_ms)
        return defect, position

    def _turn(self, store_ms: int) -> None:
        now_ms = self._newest_ms = max(self._newest_ms, store_ms)
        if not self._since_ms:
            self._since_ms = now_ms
        is_old = now_ms - self._since_ms >= self._span_ms
        if is_old or self._younger.count >= self._count_max:
            self._older, self._younger = self._younger, KeyTable()
            self._since_ms = 0
