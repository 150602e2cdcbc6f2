"""What look-ups answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from mqstore.storage._kernel import LogWindow
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.lookup_views import QueueView


class PullStatus(StrEnum):
    """How a queue range was answered; RocketMQ's GetMessageStatus names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """Entries were there, but no record among those looked at could be read; go on at next."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """At the queue's end: wait for arrivals."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """Beyond the queue's end."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """Below the queue's minimum: what was there has expired."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """Nothing was ever written."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there, and cannot be read; ``queue_offset`` where a queue named it."""

    physical_offset: int
    error: StorageError
    queue_offset: int | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """First queue offset that is there, and the next one to be written."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class Pulled(Protocol):
    """An answer that is being filled: ``Pull`` or ``Slices``."""

    status: PullStatus
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int

    def __len__(self) -> int:
        """Records taken."""

    def take(
        self,
        window: LogWindow,
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """``LogWindow.records`` or ``slices`` from ``next_offset`` on: the bytes of the answer by
        then, and whether one of its bounds was reached."""

    def add(self, found: Record) -> None: ...


@dataclass(slots=True)
class Pull:
    """Records of one queue, ascending; ``next_offset`` is where to go on."""

    status: PullStatus
    records: list[Record]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int

    def __len__(self) -> int:
        return len(self.records)

    def take(
        self,
        window: LogWindow,
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        name, queue_id, index = queue.raw_topic, queue.queue_id, self.next_offset
        found, taken, is_full = window.records(
            Record, entries, position, name, queue_id, index, count, taken, max_bytes
        )
        self.records += found
        self.next_offset += len(found)
        return taken, is_full

    def add(self, found: Record) -> None:
        self.records.append(found)


@dataclass(slots=True)
class Slices:
    """Records of one queue as they stand in the log, ascending: what a RocketMQ client decodes.

    Joined, ``parts`` are ``count`` whole records. Each part is one or more of them that follow one
    another in the log: the map itself, not a copy, wherever block checksums say that it is as it
    was written. It stays readable for as long as it is kept, and keeps the disk space of a segment
    that expires: send it, or copy it, soon.
    """

    status: PullStatus
    parts: list[memoryview]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def take(
        self,
        window: LogWindow,
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        name, queue_id, index = queue.raw_topic, queue.queue_id, self.next_offset
        found, number, taken, is_full = window.slices(
            entries, position, name, queue_id, index, count, taken, max_bytes
        )
        self.parts += found
        self.count += number
        self.next_offset += number
        return taken, is_full

    def add(self, found: Record) -> None:
        self.parts.append(memoryview(found.raw))
        self.count += 1


class Scanned(NamedTuple):
    """What a key query looked at."""

    from_ms: int
    to_ms: int
    candidates: int
    """Index entries whose records were read."""
    min_offset: int
    """First physical offset of the log as it was."""
    max_offset: int
    """Everything below it was looked for."""


class KeyAnswer(NamedTuple):
    """Records under a key, newest first.

    ``complete`` says that no record is missing: there is no ``cursor`` to go on with, and the
    index covered the whole log all along.
    """

    records: list[Record]
    unreadable: Sequence[Unreadable]
    """Records under that key, or maybe under it, that are damaged."""
    cursor: str | None
    complete: bool
    scanned: Scanned
