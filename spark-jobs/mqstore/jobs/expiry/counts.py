"""Counts of a log, as values without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGES_H: Final = (1, 3, 6, 12, 24, 48, 72, 168, 720)
"""Hours at which an age's class ends; the last class is all above."""
RATE_CLASSES: Final = AGES_H.index(24) + 1
"""The classes that say how much came within the last day."""
NOT_QUEUED: Final = -1
"""``past`` of a record without a queue entry: no reader ever comes to it."""


@dataclass(frozen=True, slots=True)
class Count:
    """Messages with equal keys; the query selects which keys are set."""

    messages: int
    bytes: int
    oldest_ms: int | None
    """Stored at, in milliseconds since 1970; None where no date can say it."""
    newest_ms: int | None = None
    first_offset: int = 0
    """Physical, of the first of them."""
    topic: str = ""
    queue_id: int = 0
    past: int = 0
    """Number of marks of the queue at or below the offsets of these messages."""
    age: int = 0
    """The class of AGES_H."""
    segment: str = ""
    plan: int = 0
    horizon: int = 0
    """The number of the first horizon that they go within, by that plan."""
    segments: int = 0
    """Number of segments that hold them."""
    goes_ms: int | None = None
    """Earliest time at which the first of these segments is deleted, Unix ms."""
