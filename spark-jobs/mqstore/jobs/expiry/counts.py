"""What was counted, as values that know no Spark."""

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
    """Messages that have the same keys; which keys are there, the question says."""

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
    """How many marks of the queue they are at or behind."""
    age: int = 0
    """The class of AGES_H."""
    segment: str = ""
    plan: int = 0
    horizon: int = 0
    """The number of the first horizon that they go within, by that plan."""
    segments: int = 0
    """That they stand in."""
    goes_ms: int | None = None
    """When the first of them goes, at the earliest."""
