"""The copies of a shard that are in sync, and the part of the log that all of them have.

``InSyncSet`` is a state machine of names, offsets and times: no sockets, clocks or tasks.
``in_sync_watch`` runs it in a leader. Names of settings are RocketMQ's; there the set is that of
AutoSwitchHAService of 5.4.0. In other ways than that one, an offset is what a copy has on its disk,
and a copy that is about to join or leave counts until the change is published.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

NEAR_S: Final = 1.0
"""A copy that is less behind is waited for before it is in the set, so that it can join it while
messages are stored."""


class _Place(NamedTuple):
    """An end of the log, and a version of the tables."""

    log: int
    tables: int

    def covers(self, other: _Place) -> bool:
        """Whether both are at least those of another place."""
        return self.log >= other.log and self.tables >= other.tables


@dataclass(slots=True)
class _Copy:
    """A copy that has reported where its log ends, and which tables it has."""

    acknowledged: _Place
    goal: _Place
    """A place of the leader's; once the copy has it, it was caught up at ``goal_at``."""
    goal_at: float
    may_join: bool
    caught_up_at: float = -math.inf
    """Latest time of which the copy is known to have the log and the tables as they were then."""
    is_connected: bool = True


class InSyncSet:
    """The names of the copies that are in sync, the leader's own included.

    Any of them may become the leader: every message below ``confirmed`` is on all their disks. A
    change is made in three steps: ``wanted`` names the set as it should be, ``begin`` says that it
    is being published, and ``settle`` that it is. In between the copies of both sets count, since
    either may be the published one. Times are monotonic, in seconds.
    """

    def __init__(
        self,
        own: str,
        members: Iterable[str] = (),
        *,
        behind_max_s: float,
        now: float,
    ) -> None:
        """``members`` are the names that were published last. Those that do not connect, and those
        that are more than ``behind_max_s`` behind (haMaxTimeSlaveNotCatchup), leave. ``note_own``
        comes before the first report: a copy joins once it has the log as it was at that report,
        and so all that earlier leaders have acknowledged."""
        self.own = own
        self.names = frozenset({own, *members})
        """The set that was published last."""
        self.confirmed = 0
        """Every member has the log below on its disk; never decreases."""
        self._replied = 0
        """The greatest offset that ``replicated`` ever was: producers may have a reply up to it."""
        self.successor: str | None = None
        """The copy to which the lead is being handed over. It may be behind as long as ever; the
        others leave after ``NEAR_S``, as it gets the tables only once the log is confirmed."""
        self._behind_max_s = behind_max_s
        self._begun_at = self._now = now
        self._own = _Place(0, 0)
        self._own_flushed = 0
        self._replied_tables = 0
        """The greatest version that ``tables_replicated`` ever was: changes up to it may have a
        reply."""
        self._copies: dict[str, _Copy] = {}
        self._in_doubt: frozenset[str] = frozenset()
        """Members of sets that were begun and not settled."""

    # what happens -------------------------------------------------------------------------

    def note_own(self, end: int, flushed: int, now: float, *, tables: int = 0) -> None:
        """Note the end of the leader's log, what is on its disk, and the version of its tables."""
        self._own, self._own_flushed = _Place(end, tables), flushed
        for copy in self._copies.values():
            if copy.is_connected and copy.acknowledged.covers(self._own):
                copy.caught_up_at = now
        self._confirm(now)

    def note_report(
        self, name: str, acknowledged: int, now: float, *, tables: int = 0, may_join: bool = True
    ) -> None:
        """Note that a copy has the log up to an offset on its disk, and the tables of a version; it
        may be less than before.

        One that may not join has it in memory perhaps, or ends within a record: a slave of
        RocketMQ."""
        copy, place = self._copies.get(name), _Place(acknowledged, tables)
        if copy is None:
            copy = self._copies[name] = _Copy(place, self._own, now, may_join)
        copy.acknowledged, copy.is_connected = place, True
        if place.covers(copy.goal):
            copy.caught_up_at = max(copy.caught_up_at, copy.goal_at)
            copy.goal, copy.goal_at = self._own, now
        if place.covers(self._own):
            copy.caught_up_at = now
        self._confirm(now)

    def note_lost(self, name: str) -> None:
        """Note that a copy is not connected any more."""
        copy = self._copies.get(name)
        if copy is None:  # it has reported nothing
            return
        copy.is_connected = False  # what it has counts until it has left
        if name not in self.names | self._in_doubt:
            del self._copies[name]

    # changes of the set -------------------------------------------------------------------

    def wanted(self, now: float) -> frozenset[str] | None:
        """Return the set that should be published, or None where it is the published one."""
        stay = {name for name in self.names if self._may_stay(name, now)}
        join = {
            name for name in self._copies if name not in self.names and self._may_join(name, now)
        }
        found = frozenset(stay | join)
        return None if found == self.names and not self._in_doubt else found

    def begin(self, names: frozenset[str]) -> None:
        """Note that a set is being published: from now on it may be the published one."""
        self._in_doubt |= names

    def settle(self, names: frozenset[str], now: float) -> None:
        """Note that a set is published, and no other one that was begun."""
        self.names, self._in_doubt = names | {self.own}, frozenset()
        for name in [name for name, copy in self._copies.items() if not copy.is_connected]:
            if name not in self.names:
                del self._copies[name]
        self._confirm(now)

    # what counts --------------------------------------------------------------------------

    @property
    def replicated(self) -> int | None:
        """Every member but the leader has the log below on its disk; None without another one."""
        others = (self.names | self._in_doubt) - {self.own}
        return min((self._acknowledged(name) for name in others), default=None)

    @property
    def tables_replicated(self) -> int:
        """Every member, and every copy that is about to join, has the tables of this version."""
        others = (self.names | self._in_doubt | self._near(self._now)) - {self.own}
        return min((self._tables_of(name) for name in others), default=self._own.tables)

    def lag_s(self, name: str, now: float) -> float | None:
        """Return for how long a copy has lacked a part of the log, in seconds; None if unknown."""
        copy = self._copies.get(name)
        if copy is not None and copy.acknowledged.log >= self._own.log:
            return 0.0
        return None if copy is None or copy.caught_up_at < 0 else max(0.0, now - copy.caught_up_at)

    def _confirm(self, now: float) -> None:
        counted = self.names | self._in_doubt | self._near(now)
        self.confirmed = max(self.confirmed, min(map(self._acknowledged, counted)))
        self._replied = max(self._replied, self.replicated or 0)
        self._now = now
        self._replied_tables = max(self._replied_tables, self.tables_replicated)

    @property
    def _promised(self) -> int:
        """Every member must have the log below: readers or producers may know of it."""
        return max(self.confirmed, self._replied)

    def _near(self, now: float) -> set[str]:
        """The copies that are about to join."""
        return {
            name
            for name, copy in self._copies.items()
            if copy.may_join and copy.is_connected and now - copy.caught_up_at < NEAR_S
        }

    def _acknowledged(self, name: str) -> int:
        if name == self.own:
            return self._own_flushed
        copy = self._copies.get(name)
        return 0 if copy is None else copy.acknowledged.log

    def _tables_of(self, name: str) -> int:
        copy = self._copies.get(name)
        return 0 if copy is None else copy.acknowledged.tables

    def _may_stay(self, name: str, now: float) -> bool:
        if name == self.own:
            return True
        copy = self._copies.get(name)
        behind_max_s = self._behind_max_of(name)
        if copy is None:  # it has not connected to this leader yet
            return now - self._begun_at <= behind_max_s
        if not copy.is_connected or copy.acknowledged.log < self._promised:
            return False
        return now - max(copy.caught_up_at, self._begun_at) <= behind_max_s

    def _may_join(self, name: str, now: float) -> bool:
        copy = self._copies[name]
        if not copy.may_join or not copy.is_connected:
            return False
        if now - copy.caught_up_at > self._behind_max_of(name):
            return False
        return copy.acknowledged.covers(_Place(self._promised, self._replied_tables))

    def _behind_max_of(self, name: str) -> float:
        """Return for how long a copy may lack a part of the log or the tables, and be in sync."""
        if self.successor in (None, name):
            return self._behind_max_s
        return min(self._behind_max_s, NEAR_S)
