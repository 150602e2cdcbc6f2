"""Binary search of a queue's entries, some of which name no readable record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from mqstore.storage.queues.queue_entry import QueueEntry

Reached = Callable[[QueueEntry], bool | None]
"""Whether the search has reached its target at an entry; None for an entry that is skipped."""


class SearchedQueue(Protocol):
    """The entries of one queue, by number."""

    @property
    def max_index(self) -> int:
        """The entry to be written next."""

    def entry(self, index: int) -> QueueEntry | None:
        """Entry ``index``, or None where it is not there."""

    def entries(self, start: int, stop: int) -> Iterator[tuple[int, QueueEntry]]:
        """Entries from ``start`` to before ``stop`` with their numbers."""


def search(queue: SearchedQueue, low: int, reached: Reached) -> int:
    """Find the first entry from ``low`` for which ``reached`` is true; ``max_index`` without one.

    ``reached`` is false for all entries before that one and true from there on.
    """
    end = high = queue.max_index
    while low < high:
        middle = (low + high) // 2
        probe, answer = _probe(queue, middle, high, reached)
        if answer is False:
            low = probe + 1
        else:
            high = middle
    return _probe(queue, low, end, reached)[0]


def _probe(
    queue: SearchedQueue, start: int, stop: int, reached: Reached
) -> tuple[int, bool | None]:
    """The first entry from ``start`` with a result, and the result."""
    entry = queue.entry(start) if start < stop else None
    if entry is not None and (answer := reached(entry)) is not None:
        return start, answer
    for index, entry in queue.entries(start + 1, stop):
        answer = reached(entry)
        if answer is not None:
            return index, answer
    return stop, None
