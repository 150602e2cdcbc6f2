"""What is known of the log's blocks, in one process and epoch: whether a record may be answered.

A block is compared with its checksum once and remembered until the epoch changes; of the block that
is still being written, as much as was compared. A record is refused only where the damage may touch
it. ``window`` is the same knowledge for the kernel, which reads what is plain by itself.

Called from ``lookups``. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage._kernel import LogWindow, Segment, locate_damage
from mqstore.storage.errors import RecordBlockCorrupt
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.own.block_files import BlockFiles

SEGMENTS_MAX: Final = 256
"""Segments that are known at a time; each costs 4 bytes a block, 64 KiB for one of 1 GiB."""


class BlockGuard:
    """For one process's view of one store."""

    def __init__(
        self, blocks: BlockFiles, window: LogWindow, counts: Callable[[], bool] = lambda: True
    ) -> None:
        """``counts`` tells whether the checksums are of the log as it is; asked on a mismatch."""
        self.window = window
        self._blocks = blocks
        self._counts = counts
        self._epoch = -1
        self._damaged: dict[int, tuple[int, int]] = {}
        """By a block's first byte, between which offsets it is not as it was written."""

    def renew(self) -> int:
        """Forget what expired, and everything when the epoch is another one; the epoch."""
        epoch = self.window.renew()
        if epoch != self._epoch:
            self._epoch, self._damaged = epoch, {}
        return epoch

    def segment(self, view: memoryview, base: int) -> Segment:
        """What is known of the segment at ``base``, whose bytes are ``view``."""
        found = self.window.find(base)
        if found is None or found.lacks_checksums:
            found = Segment(view, base, self._blocks.entries(base))
            self.window.add(found, SEGMENTS_MAX)
        return found

    def check(self, view: memoryview, position: int, offset: int, size: int) -> None:
        """``view`` is a whole segment; the record at ``position`` in it has the physical
        ``offset``. Raises RecordBlockCorrupt."""
        base, end = offset - position, position + size
        segment = self.segment(view, base)
        while (number := segment.changed_block(position, end - position)) >= 0:
            damage = self._damage(segment, number)
            if damage is not None and damage[0] < base + end and offset < damage[1]:
                raise RecordBlockCorrupt(offset, *damage)
            position = min(end, (number + 1) * BLOCK_SIZE)

    def covered(self, view: memoryview, position: int, offset: int, size: int) -> int:
        """How many bytes of a record stand as their blocks' checksums say; the rest has none.

        Arguments as ``check``. Raises RecordBlockCorrupt.
        """
        self.check(view, position, offset, size)
        return self.segment(view, offset - position).covered(position, size)

    def _damage(self, segment: Segment, number: int) -> tuple[int, int] | None:
        block = segment.base + number * BLOCK_SIZE
        known = self._damaged.get(block)
        if known is None and self._counts() and segment.entries is not None:
            start, stop = locate_damage(segment.view, segment.entries, segment.base, number)
            known = self._damaged[block] = (segment.base + start, segment.base + stop)
        return known
