"""The first entry of a queue at or above the log's minimum.

A queue at rest is not mapped for it: its entries are read when the number is.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol


class Searched(Protocol):
    """The queue."""

    @property
    def first_index(self) -> int:
        """The queue offset at which the first file begins."""

    @property
    def is_mapped(self) -> bool:
        """Whether its entries can be read without mapping a file."""

    def find_by_physical(self, physical_offset: int) -> int:
        """Find the first entry at or above a physical offset."""


class MinIndex:
    """The number, as last corrected. Thread-safe."""

    def __init__(self, queue: Searched) -> None:
        self.last = 0
        """The number as last found or set."""
        self._queue = queue
        self._due: int | None = None
        """The log's minimum by which the number is to be found when it is read."""
        self._lock = Lock()

    def get(self) -> int:
        """The number. Raises OSError when the queue cannot be mapped."""
        if self._due is not None:
            with self._lock:
                if self._due is not None:
                    self._find(self._due)
        return self.last

    def set(self, index: int) -> None:
        """Set the number, as the queue's begin or end has changed."""
        self.last = index

    def correct(self, min_physical: int) -> None:
        """Find the number by the log's minimum: now, or when the queue that rests is used."""
        with self._lock:
            if self._queue.is_mapped:
                self._find(min_physical)
            else:
                self._due = min_physical

    def _find(self, min_physical: int) -> None:
        queue = self._queue
        if min_physical <= 0:
            self.last = queue.first_index
        else:
            self.last = queue.find_by_physical(min_physical)
        self._due = None
