"""Fillers of a ConsumeQueue that still repeat an older entry than their predecessor.

A record that turns up for a filled hole leaves the fillers behind it as they are: to write them at
each put would cost the square of their number. ``settle`` writes them once after many puts. Called
under the dispatcher's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqstore.storage.queues.consume_queue import ConsumeQueue
    from mqstore.storage.queues.queue_entry import QueueEntry

_RUNS_MAX: Final = 10_000
"""Runs of fillers that wait at a time: records in an odd order take no more memory."""


class DueFillers:
    """The runs of due fillers of one queue."""

    def __init__(self, queue: ConsumeQueue, overwrite: Callable[[int, QueueEntry], None]) -> None:
        self._queue = queue
        self._overwrite = overwrite
        self._runs: set[int] = set()
        """The first entry of each run."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def note_put(self, index: int) -> None:
        """Note that an entry below the queue's end has its record. Raises OSError."""
        self._runs.discard(index)
        if self.has(index + 1):
            self._runs.add(index + 1)
        if len(self._runs) > _RUNS_MAX:
            self.settle()

    def has(self, index: int) -> bool:
        """Whether an entry is a due filler, also where a process was killed before ``settle``."""
        queue = self._queue
        entry, before = queue.entry(index), queue.entry(index - 1)
        if entry is None or before is None or entry.is_hole:
            return False
        if entry.physical_offset >= before.physical_offset:
            return False
        first = queue.find_by_physical(entry.physical_offset)
        named = queue.entry(first)
        return first < index and named is not None and named[:2] == entry[:2]

    def settle(self) -> None:
        """Let each filler repeat the entry before it. Raises OSError."""
        runs, self._runs = sorted(self._runs), set()
        for index in runs:
            before, old = self._queue.entry(index - 1), self._queue.entry(index)
            if before is None or old is None or not self.has(index):
                continue
            while (entry := self._queue.entry(index)) is not None and entry[:2] == old[:2]:
                self._overwrite(index, before)
                index += 1
