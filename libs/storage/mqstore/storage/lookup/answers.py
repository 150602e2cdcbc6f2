"""What look-ups answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqstore.storage._kernel import KeyAnswer as KeyAnswer
from mqstore.storage._kernel import Pull as Pull
from mqstore.storage._kernel import Scanned as Scanned
from mqstore.storage._kernel import Slices as Slices
from mqstore.storage.errors import StorageError


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
