"""Notes of the actions of retention for operators, with their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.storage.retention.plan import RetentionPlan, Trigger

NOTES_KEPT: Final = 1_000
"""Number of notes kept, the latest: far more than a volume causes between two reads."""


FORCED_DELETION: Final = "forced-deletion"
"""A segment, or spare segments, were deleted before their time to make room."""
SPACE_NOT_FREED: Final = "space-not-freed"
"""Deleted bytes are still in use, as another process keeps their files open."""


@dataclass(frozen=True, slots=True)
class Note:
    """One action of retention; ``number`` counts from 1."""

    number: int
    kind: str
    figures: Mapping[str, int | float | str | None]


def forced_deletion_figures(
    plan: RetentionPlan, segment: str | None, size: int, age_ms: int | None
) -> Mapping[str, int | float | str | None]:
    """The figures of a ``FORCED_DELETION`` that ``plan`` decided, as they were before it.

    Without a ``segment``, those of the deletion of spare segments. Sizes are in bytes.
    """
    fullest = plan.fullest
    lacks = Trigger.NO_SEGMENT in plan.triggers
    return {
        "segment": segment,
        "bytes": size,
        "ageMs": age_ms,
        "volume": fullest.name,
        "usedBytes": fullest.used_bytes,
        "unlinkedBytes": fullest.unlinked_bytes,
        "totalBytes": fullest.total_bytes,
        "freeBytes": fullest.free_bytes,
        "abovePercent": plan.rule.disk_space_clean_forcibly_ratio,
        "trigger": (Trigger.NO_SEGMENT if lacks else Trigger.FORCED).value,
    }


class Journal:
    """The notes; one thread at a time writes, any thread reads."""

    def __init__(self) -> None:
        self._notes: tuple[Note, ...] = ()
        self._count = 0

    @property
    def count(self) -> int:
        """Number of notes since the opening."""
        return self._count

    def add(self, kind: str, figures: Mapping[str, int | float | str | None]) -> None:
        """Append a note."""
        note = Note(self._count + 1, kind, figures)
        self._notes = (*self._notes[1 - NOTES_KEPT :], note)
        self._count = note.number

    def after(self, number: int) -> list[Note]:
        """The kept notes after ``number``, oldest first."""
        return [note for note in self._notes if note.number > number]
