"""Counts bytes of unlinked files whose blocks are not free yet, as a process keeps the files open.

They count as free until the volume shows them as free, so that retention does not delete the next
segment for lack of the room that the previous one frees. Bytes that no measurement shows as free in
time count as used again, and forced deletion then pauses.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

SHOWN_WITHIN_S: Final = 60.0
"""Longest time that a volume may take to show the blocks as free.

Our readers unmap within a second; another process that keeps a deleted file open for longer may
keep it for good.
"""
DOUBT_MAX_S: Final = 3_600.0
"""Longest pause after a deletion that made no room; each pause is twice the one before."""


@dataclass(slots=True)
class _Deletion:
    size: int
    left: int
    at: float


class UnlinkedBytes:
    """Counts the unlinked bytes of one volume that may still be in use. Not thread-safe."""

    def __init__(self) -> None:
        self._entries: deque[_Deletion] = deque()
        self._seen: tuple[int, int] | None = None
        self._doubt_s = 0.0
        self._doubts_until = -math.inf

    @property
    def left(self) -> int:
        """Bytes that the volume does not show as free yet."""
        return sum(entry.left for entry in self._entries)

    def doubts(self, now: float) -> bool:
        """Whether further deletion must wait: the last one made no room within ``SHOWN_WITHIN_S``,
        and the next attempt is not due, or is under way."""
        return now < self._doubts_until or (self._doubt_s > 0 and bool(self._entries))

    def add(self, size: int, now: float) -> None:
        """Note that a file of ``size`` bytes was unlinked at monotonic time ``now``."""
        self._entries.append(_Deletion(size, size, now))

    def settle(self, used: int, made: int, now: float) -> int:
        """Compare with a new measurement; returns the bytes that were not shown as free in time.

        ``used`` bytes are in use; ``made`` counts the bytes of new files since the start, which
        hide as many of the freed bytes.
        """
        if self._seen is not None:
            used_before, made_before = self._seen
            self._credit(used_before + made - made_before - used)
        self._seen = used, made
        lost = 0
        while self._entries and now - self._entries[0].at >= SHOWN_WITHIN_S:
            entry = self._entries.popleft()
            # A smaller difference means that other files grew at the same time.
            lost += entry.left if 2 * entry.left >= entry.size else 0
        if lost:
            self._doubt_s = min(DOUBT_MAX_S, max(SHOWN_WITHIN_S, 2 * self._doubt_s))
            self._doubts_until = now + self._doubt_s
        return lost

    def _credit(self, freed: int) -> None:
        while self._entries and freed > 0:
            entry = self._entries[0]
            part = min(freed, entry.left)
            entry.left -= part
            freed -= part
            if entry.left == 0:
                self._entries.popleft()
                self._doubt_s, self._doubts_until = 0.0, -math.inf
