"""The tables of a replica as a set of changes, on a disk that loses what was not saved.

A leader numbers its changes, as ``TableFeed`` does; a follower takes all that it lacks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.shard.ledger import Record

LogPlace = tuple[int, Record]
"""A record with its offset."""


@dataclass
class ModelTables:
    """Changes by their numbers, which no two of a schedule share."""

    changes: set[int] = field(default_factory=set)
    saved: set[int] = field(default_factory=set)
    refers_to: LogPlace | None = None
    """The last record of the log that the tables refer to, as the progress of delayed messages and
    consumer offsets do."""

    def save(self) -> None:
        """Have all changes on disk."""
        self.saved = set(self.changes)

    def adopt(self, changes: frozenset[int], refers_to: LogPlace | None) -> None:
        """Become the tables of a leader, durably. The log is on disk."""
        self.changes, self.refers_to = set(changes), refers_to
        self.save()

    def lose_power(self) -> None:
        """Lose what is not on disk."""
        self.changes = set(self.saved)
