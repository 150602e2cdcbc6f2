"""The tables of a replica as a set of changes, on a disk that loses what was not saved.

A leader numbers its changes, as ``TableFeed`` does; a follower takes all that it lacks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ModelTables:
    """Changes by their numbers, which no two of a schedule share."""

    changes: set[int] = field(default_factory=set)
    saved: set[int] = field(default_factory=set)
    position: int = 0
    """An offset of the log that the tables refer to, as the progress of delayed messages does."""

    def save(self) -> None:
        """Have all changes on disk."""
        self.saved = set(self.changes)

    def adopt(self, changes: frozenset[int], position: int) -> None:
        """Become the tables of a leader, durably. The log is on disk."""
        self.changes, self.position = set(changes), position
        self.save()

    def note_cut(self, end: int) -> None:
        """Note that the log was cut. The tables of the earlier leader stay until the next one sends
        its own: no schedule checks them against the log meanwhile."""
        self.position = min(self.position, end)

    def lose_power(self) -> None:
        """Lose what is not on disk."""
        self.changes = set(self.saved)
