"""Comparing what a look-up reads with the checksums of its blocks.

A block is compared once and remembered until the epoch changes; of the block that is still being
written, as much as was compared. A record is refused only where the damage may touch it.

Called from ``lookups``. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from mqstore.storage._kernel import (
    StoredRecord,
    check_block,
    locate_damage,
    touched_blocks,
)
from mqstore.storage.errors import RecordBlockCorrupt
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.own.block_files import BlockFiles

R = TypeVar("R", bound=StoredRecord)

REMEMBERED_MAX: Final = 65_536
"""Blocks of 64 KiB that are remembered at a time: some 10 MB of memory."""
MAPPED_MAX: Final = 256
"""Side files that are kept mapped."""
_LOOK_AGAIN: Final = 256
"""Reads of a segment without checksums after which it is looked whether it has some by now."""


class _Memory:
    """What is known of the blocks in one epoch; physical offsets."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.entries: dict[int, memoryview] = {}
        """By segment."""
        self.misses: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        """By a block's first byte, how many bytes from there on are as they were written."""
        self.damaged: dict[int, tuple[int, int]] = {}
        """By a block's first byte, between which offsets it is not."""

    def make_room(self) -> None:
        if len(self.entries) >= MAPPED_MAX:
            self.entries.clear()
        for remembered in (self.whole, self.damaged, self.misses):
            if len(remembered) >= REMEMBERED_MAX:
                remembered.clear()


class BlockGuard:
    """For one process's view of one store."""

    def __init__(self, blocks: BlockFiles, counts: Callable[[], bool] = lambda: True) -> None:
        """``counts`` tells whether the checksums are of the log as it is; asked on a mismatch."""
        self._blocks = blocks
        self._counts = counts
        self._memory = _Memory(-1)

    def renew(self, epoch: int) -> None:
        """Forget everything when the epoch is another one."""
        if epoch != self._memory.epoch:
            self._memory = _Memory(epoch)

    def check(self, view: memoryview, position: int, offset: int, size: int) -> None:
        """``view`` is a whole segment; the record at ``position`` in it has the physical
        ``offset``. Raises RecordBlockCorrupt."""
        within = position % BLOCK_SIZE
        if within + size > self._memory.whole.get(offset - within, 0):
            self._check(view, position, offset, size)

    def covered(self, view: memoryview, position: int, offset: int, size: int) -> int:
        """How many bytes of a record stand as their blocks' checksums say; the rest has none.

        Arguments as ``check``. Raises RecordBlockCorrupt.
        """
        self._check(view, position, offset, size)
        base, covered = offset - position, 0
        for number in range(position // BLOCK_SIZE, (position + size - 1) // BLOCK_SIZE + 1):
            block = base + number * BLOCK_SIZE
            end = min(block + self._memory.whole.get(block, 0), offset + size)
            covered += max(0, end - max(block, offset))
        return covered

    def count_whole(self, view: memoryview, base: int, records: list[R]) -> int:
        """How many records of a segment there are before the first that ``check`` refuses."""
        memory = self._memory
        entries = self._entries(memory, base) if records else None
        if entries is None:
            return len(records)
        memory.make_room()
        damage = [
            self._damage(memory, view, entries, base, number)
            for number in touched_blocks(records, base)
            if memory.whole.get(base + number * BLOCK_SIZE) != BLOCK_SIZE
        ]
        for number, record in enumerate(records if any(damage) else ()):
            start, stop = record.physical_offset, record.physical_offset + record.size
            if any(each is not None and each[0] < stop and start < each[1] for each in damage):
                return number
        return len(records)

    def _check(self, view: memoryview, position: int, offset: int, size: int) -> None:
        memory, base = self._memory, offset - position
        entries = self._entries(memory, base)
        if entries is None:
            return
        memory.make_room()
        for number in range(position // BLOCK_SIZE, (position + size - 1) // BLOCK_SIZE + 1):
            damage = self._damage(memory, view, entries, base, number)
            if damage is not None and damage[0] < offset + size and offset < damage[1]:
                raise RecordBlockCorrupt(offset, *damage)

    def _damage(
        self, memory: _Memory, view: memoryview, entries: memoryview, base: int, number: int
    ) -> tuple[int, int] | None:
        block = base + number * BLOCK_SIZE
        known = memory.damaged.get(block)
        if known is not None:
            return known
        length = check_block(view, entries, base, number, memory.whole.get(block, 0))
        if length >= 0:
            memory.whole[block] = length
            return None
        if not self._counts():
            return None
        start, stop = locate_damage(view, entries, base, number)
        memory.damaged[block] = (base + start, base + stop)
        return memory.damaged[block]

    def _entries(self, memory: _Memory, base: int) -> memoryview | None:
        found = memory.entries.get(base)
        if found is not None:
            return found
        misses = memory.misses.get(base, 0)
        memory.misses[base] = misses + 1
        if misses % _LOOK_AGAIN == 0 and (found := self._blocks.entries(base)) is not None:
            memory.entries[base] = found
        return found
