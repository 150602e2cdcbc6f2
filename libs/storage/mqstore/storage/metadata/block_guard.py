"""Caches which blocks of the log match their checksums, in one process and epoch.

The result decides which records may be returned. A block is compared with its checksum once and
cached until the epoch changes; of the block that is still being written, the compared part is
cached. Where one changed word is located, the record that it touches is rejected. Where the damage
is wider, its blocks verify no record that it may touch, and the reader uses the record's own
checks. ``window`` shares the results with the kernel, which reads records of verified blocks by
itself. Damage that a look-up meets is reported to the scrub, each block once in an epoch.

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
"""Maximum number of cached segments; each costs 4 bytes a block, 64 KiB for one of 1 GiB."""
REPORTED_MAX: Final = 1_024
"""Maximum number of remembered reported blocks, in each process; then all are forgotten, and may be
reported again."""


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

        ``on_damage`` is called with a physical offset in each block that a look-up found damaged or
        could not read, in the look-up's thread: it must not wait or raise.
        """
        self.window = window
        self._blocks = blocks
        self._counts = counts
        self._on_damage = on_damage
        self._epoch = window.epoch
        self._damaged: dict[int, tuple[int, int]] = {}
        """By the offset of a block's first byte, the range of changed offsets."""
        self._reported: set[int] = set()
        """First offsets of the blocks that were reported in this epoch."""

    def renew(self) -> int:
        """Forget expired segments, and all of them when the epoch has changed; returns the
        epoch."""
        epoch = self.window.renew()
        if epoch != self._epoch:
            self._epoch, self._damaged, self._reported = epoch, {}, set()
        return epoch

    @property
    def epoch(self) -> int:
        """The epoch at the last ``renew``.

        A caller that reads it before it takes a view can check later that the view is of the same
        epoch.
        """
        return self.window.epoch

    def segment(self, view: memoryview, base: int, epoch: int) -> Segment:
        """The cached checks of the segment at ``base``; ``view`` are its bytes, taken in
        ``epoch``."""
        found = self.window.find(base)
        if found is None or found.lacks_checksums:
            found = Segment(view, base, self._blocks.entries(base))
            self.window.add(found, SEGMENTS_MAX, epoch)
        return found

    def check(
        self, view: memoryview, position: int, offset: int, size: int, epoch: int
    ) -> tuple[int, int] | None:
        """Check the record at ``position`` of a segment, whose physical offset is ``offset``.

        Raises RecordBlockCorrupt where one changed word of the record is located. Returns the
        physical offsets of wider damage that may touch the record, whose blocks then do not verify
        it; None when they do.
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

    def count_covered(
        self, view: memoryview, position: int, offset: int, size: int, epoch: int
    ) -> int:
        """Count the bytes of a record that match their blocks' checksums; the others have none.

        Arguments as ``check``. Raises RecordBlockCorrupt.
        """
        self.check(view, position, offset, size, epoch)
        return self.segment(view, offset - position, epoch).count_covered(position, size)

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
            if start == stop:  # doubtful since a repair, or just changed
                stop = start + BLOCK_SIZE
            else:
                self.report(segment.base, segment.base + start, segment.base + stop)
            known = (segment.base + start, segment.base + stop)
            if epoch == self._epoch:
                self._damaged[block] = known
        return known
