"""Remembers which blocks of the log match their checksums, in one process and epoch, and so which
records may be returned.

A block is compared with its checksum once and remembered until the epoch changes; of the block that
is still being written, the compared part is remembered. Where one changed word is located, the
record that it touches is refused. Where the damage is spread wider, its blocks vouch for no record
that it may touch, and the reader looks at the record's own checks. ``window`` shares the results
with the kernel, which reads records of verified blocks by itself. Damage that a look-up meets is
reported to the scrub, each block once in an epoch.

Called from ``lookups``. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqstore.storage._kernel import LogWindow, Segment, locate_damage
from mqstore.storage.errors import RecordBlockCorrupt
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.changed_word import WORD_SIZE

SEGMENTS_MAX: Final = 256
"""Segments that are known at a time; each costs 4 bytes a block, 64 KiB for one of 1 GiB."""
REPORTED_MAX: Final = 1_024
"""Reported blocks that are remembered, in each process; then all are forgotten, and may be reported
once more."""


class BlockGuard:
    """The verified blocks in one process's view of one store."""

    def __init__(
        self,
        blocks: BlockFiles,
        window: LogWindow,
        counts: Callable[[], bool] = lambda: True,
        on_damage: Callable[[int], object] | None = None,
    ) -> None:
        """``counts`` returns whether the checksums are of the present log; called on a mismatch.

        ``on_damage`` gets a physical offset in each block that a look-up found damaged or could
        not read, in the look-up's thread: it must not wait or raise.
        """
        self.window = window
        self._blocks = blocks
        self._counts = counts
        self._on_damage = on_damage
        self._epoch = window.epoch
        self._damaged: dict[int, tuple[int, int]] = {}
        """By the offset of a block's first byte: the range of offsets that was changed."""
        self._reported: set[int] = set()
        """First offsets of the blocks that were reported in this epoch."""

    def renew(self) -> int:
        """Forget what expired, and everything when the epoch is another one; the epoch."""
        epoch = self.window.renew()
        if epoch != self._epoch:
            self._epoch, self._damaged, self._reported = epoch, {}, set()
        return epoch

    @property
    def epoch(self) -> int:
        """The epoch at the last ``renew``. A caller that reads it before it takes a view can check
        later that the view is of the same epoch."""
        return self.window.epoch

    def segment(self, view: memoryview, base: int, epoch: int) -> Segment:
        """The remembered checks of the segment at ``base``; ``view`` are its bytes, taken in
        ``epoch``."""
        found = self.window.find(base)
        if found is None or found.lacks_checksums:
            found = Segment(view, base, self._blocks.entries(base))
            self.window.add(found, SEGMENTS_MAX, epoch)
        return found

    def check(
        self, view: memoryview, position: int, offset: int, size: int, epoch: int
    ) -> tuple[int, int] | None:
        """``view`` is a whole segment; the record at ``position`` in it has the physical
        ``offset``. Raises RecordBlockCorrupt where one changed word of it is known.

        Returns the physical offsets between which wider damage lies that may touch the record: its
        blocks then vouch for nothing of it. None where they vouch for it.
        """
        base, end = offset - position, position + size
        segment = self.segment(view, base, epoch)
        doubt: tuple[int, int] | None = None
        while (number := segment.changed_block(position, end - position)) >= 0:
            damage = self._damage(segment, number, epoch)
            if damage is not None and damage[0] < base + end and offset < damage[1]:
                if damage[1] - damage[0] <= WORD_SIZE:
                    raise RecordBlockCorrupt(offset, *damage)
                doubt = doubt or damage
            position = min(end, (number + 1) * BLOCK_SIZE)
        return doubt

    def covered(self, view: memoryview, position: int, offset: int, size: int, epoch: int) -> int:
        """How many bytes of a record stand as their blocks' checksums say; the rest has none.

        Arguments as ``check``. Raises RecordBlockCorrupt.
        """
        self.check(view, position, offset, size, epoch)
        return self.segment(view, offset - position, epoch).covered(position, size)

    def report(self, base: int, start: int, stop: int) -> None:
        """Report the blocks of a segment that hold bytes between two physical offsets, each once in
        an epoch. ``base`` is the segment's first offset."""
        if self._on_damage is None:
            return
        for block in range(start - (start - base) % BLOCK_SIZE, stop, BLOCK_SIZE):
            if block in self._reported:
                continue
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported.add(block)
            self._on_damage(max(start, block))

    def _damage(self, segment: Segment, number: int, epoch: int) -> tuple[int, int] | None:
        block = segment.base + number * BLOCK_SIZE
        known = self._damaged.get(block)
        if known is None and self._counts() and segment.entries is not None:
            start, stop = locate_damage(segment.view, segment.entries, segment.base, number)
            if start == stop:  # in doubt since a repair, or it has just changed
                stop = start + BLOCK_SIZE
            else:
                self.report(segment.base, segment.base + start, segment.base + stop)
            known = (segment.base + start, segment.base + stop)
            if epoch == self._epoch:
                self._damaged[block] = known
        return known
