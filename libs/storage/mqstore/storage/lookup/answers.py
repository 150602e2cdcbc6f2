"""Values that look-ups return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqstore.storage._kernel import KeyAnswer as KeyAnswer
from mqstore.storage._kernel import Pull as Pull
from mqstore.storage._kernel import ScanRange as ScanRange
from mqstore.storage._kernel import Slices as Slices
from mqstore.storage.errors import StorageError


class PullStatus(StrEnum):
    """The result of a pull; the names are those of RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """The filter matched none of the examined records; continue at the next offset."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the queue's end: wait for arrivals."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """The offset is beyond the queue's end."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """The offset is below the queue's minimum: the messages there have expired."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue never had a message."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An existing record that cannot be read; ``queue_offset`` when a queue entry named it."""

    physical_offset: int
    error: StorageError
    queue_offset: int | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The bounds of one queue: its first queue offset, and the next one to be written."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
