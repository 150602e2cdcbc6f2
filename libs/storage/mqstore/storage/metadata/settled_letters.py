"""``store/mqstore/dead-letters.json``: the dead letters that were resent or purged.

The log is append-only, so a dead letter stays in its queue of ``%DLQ%GROUP`` until it expires. This
file has the queue offsets of those that are settled: they are not listed any more. RocketMQ ignores
it. Without the file, or with a damaged one, these dead letters are listed again.

Offsets count only while the queue still has the record at ``last``: a topic that a broker deleted
and created again begins at offset 0, and its dead letters are new.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.seams import FileStat, FileSystem

log = logging.getLogger(__name__)

RANGES_MAX: Final = 50_000
"""Maximum number of ranges of settled dead letters in one store: the file has 20 bytes for each."""


class Place(NamedTuple):
    """The place of a record in a queue and in the log."""

    queue_offset: int
    physical_offset: int


NOWHERE: Final = Place(-1, -1)


@dataclass(frozen=True, slots=True)
class SettledLetters:
    """The settled dead letters of one queue."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and next queue offset of each range, in order; no two of them touch."""
    last: Place = NOWHERE
    """The place of a settled dead letter that no settled one is behind."""

    def has(self, offset: int) -> bool:
        """Whether the dead letter at a queue offset is settled."""
        return self.first_open(offset) > offset

    def first_open(self, offset: int) -> int:
        """The first queue offset from ``offset`` on that is not settled."""
        found = bisect_right(self.ranges, (offset, _END)) - 1
        if found < 0:
            return offset
        start, stop = self.ranges[found]
        return stop if start <= offset < stop else offset

    def count(self, low: int, high: int) -> int:
        """Number of settled queue offsets from ``low`` to before ``high``."""
        return sum(max(0, min(stop, high) - max(start, low)) for start, stop in self.ranges)

    def with_ranges(
        self, added: Iterable[tuple[int, int]], last: Place, minimum: int
    ) -> SettledLetters:
        """These and others; without those below ``minimum``, which have expired."""
        joined: list[tuple[int, int]] = []
        for start, stop in sorted([*self.ranges, *added]):
            if stop <= minimum or start >= stop:
                continue
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], stop)
            else:
                joined.append((start, stop))
        return SettledLetters(tuple(joined), max(self.last, last))


_END: Final = 1 << 63
NOTHING_SETTLED: Final = SettledLetters()

Settled = Mapping[tuple[str, int], SettledLetters]
"""The settled dead letters by topic and queue id."""


class _Queue(StrictValue):
    topic: str
    queue: int
    ranges: tuple[tuple[int, int], ...]
    last: Place


class _Saved(StrictValue):
    queues: tuple[_Queue, ...]


def save(files: FileSystem, path: Path, settled: Settled) -> None:
    """Replace the file; durable at return. Raises OSError."""
    queues = tuple(
        _Queue(topic=topic, queue=queue_id, ranges=each.ranges, last=each.last)
        for (topic, queue_id), each in settled.items()
    )
    sealed_json.write(files, path, _Saved(queues=queues))


def read(files: FileSystem, path: Path) -> Settled:
    """Read the settled dead letters, none without a file. Raises OSError, ValueError."""
    saved = sealed_json.read(files, path, _Saved) or _Saved(queues=())
    return {(each.topic, each.queue): _restored(each) for each in saved.queues}


def load(files: FileSystem, path: Path) -> Settled:
    """Load the settled dead letters; none from a file that cannot be read."""
    try:
        return read(files, path)
    except (OSError, ValueError) as error:
        log.error("%s cannot be read, dead letters are listed again: %s", path, error)
        return {}


def _restored(saved: _Queue) -> SettledLetters:
    bounds = [bound for each in saved.ranges for bound in each]
    if bounds != sorted(set(bounds)):
        raise ValueError(f"ranges of {saved.topic} are not in order")
    return SettledLetters(saved.ranges, saved.last)


class FollowedSettled:
    """Reads the file of another process again when it was replaced. Thread-safe."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._lock = Lock()
        self._seen: FileStat | None = None
        self._known: Settled = {}

    def now(self) -> Settled:
        """The settled dead letters. Raises OSError."""
        with self._lock:
            found = self._files.stat(self._path)
            if found != self._seen:
                self._known = load(self._files, self._path)
                self._seen = found
            return self._known
