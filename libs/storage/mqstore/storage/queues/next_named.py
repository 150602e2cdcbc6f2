"""Finds what queue entries name at and behind ascending places of the log.

Called at each damaged stretch of a log. A question about every queue at each of them would make
their cost the product of both numbers; here a queue is searched again once its answer was passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key")


class NextNamed(Generic[Key]):
    """The first physical offset that each queue names from a place on. Not for sharing between
    threads."""

    def __init__(
        self, queues: Iterable[Key], first_from: Callable[[Key, int], int | None], start: int
    ) -> None:
        """``first_from`` returns the least physical offset at or above another one that a queue
        names, or None. Later questions are about ``start`` and above."""
        self.start = start
        self._first_from = first_from
        self._next: list[tuple[int, int, Key]] = []
        """By the first offset that is named from ``start`` on; the second number separates queues
        that name the same one."""
        for number, queue in enumerate(queues):
            if (found := first_from(queue, start)) is not None:
                self._next.append((found, number, queue))
        heapify(self._next)

    def above(self, offset: int) -> int | None:
        """The least named offset above another one."""
        self._advance(offset)
        here = self._pop_below(offset + 1)
        beyond = [self._first_from(queue, offset + 1) for _, _, queue in here]
        found = [each for each in beyond if each is not None]
        found += [each[0] for each in self._next[:1]]
        self._push(here)
        return min(found, default=None)

    def within(self, start: int, stop: int) -> list[Key]:
        """The queues that name an offset from ``start`` to before ``stop``."""
        self._advance(start)
        here = self._pop_below(stop)
        self._push(here)
        return [queue for _, _, queue in here]

    def _advance(self, start: int) -> None:
        if start < self.start:
            raise ValueError(f"offset {start} is below {self.start}, which was passed")
        self.start = start
        for _, number, queue in self._pop_below(start):
            if (found := self._first_from(queue, start)) is not None:
                heappush(self._next, (found, number, queue))

    def _pop_below(self, offset: int) -> list[tuple[int, int, Key]]:
        found = []
        while self._next and self._next[0][0] < offset:
            found.append(heappop(self._next))
        return found

    def _push(self, items: list[tuple[int, int, Key]]) -> None:
        for item in items:
            heappush(self._next, item)
