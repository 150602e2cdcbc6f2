"""The look of a leader at its connections: which copies are in sync, and what is confirmed.

The caller looks after each report of a copy and many times a second, syncs the log where that is
wanted, and publishes the changes of the set.
"""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage.replication.connections import Connections
from mqstore.storage.replication.ha_frames import Confirmation
from mqstore.storage.replication.in_sync import InSyncSet
from mqstore.storage.replication.leader_session import LeaderSession
from mqstore.storage.replication.stores import ReplicaStore


class InSyncLook:
    """Feeds an ``InSyncSet`` what the leader and its copies have. Not thread-safe."""

    def __init__(
        self,
        copies: InSyncSet,
        store: ReplicaStore,
        connections: Connections | None,
        clock: Callable[[], float],
        *,
        syncs: bool = False,
    ) -> None:
        """``connections`` is None where no copy may connect. ``syncs``: the log is to be synced as
        soon as it grows, since readers see no more than what is confirmed."""
        self.copies = copies
        self.connected: dict[str, LeaderSession] = {}
        """The copies that were connected at the last look, by name."""
        self.on_change: Callable[[str, str], object] = lambda change, name: None
        """Called with what has changed (connected, lost, joined, left) and the name of a copy."""
        self.wanted_sync = 0
        """The offset up to which the log is to be synced; 0 where none is needed."""
        self._store = store
        self._connections = connections
        self._clock = clock
        self._syncs = syncs
        self._confirmed: Confirmation | None = None
        self._is_publishing = False
        self._tables = 0
        """Version of the tables that all copies in sync had when listeners were called last."""

    def look(self) -> None:
        """Feed the set; confirm."""
        now, copies, log = self._clock(), self.copies, self._store.log
        connections = self._connections
        slaves = {} if connections is None else {each.name: each for each in connections.slaves}
        for name in [name for name in self.connected if name not in slaves]:
            copies.note_lost(name)
            self.on_change("lost", name)
            del self.connected[name]
        flushed = log.flushed_offset
        copies.note_own(log.max_offset, flushed, now, tables=self._store.table_feed.version)
        for name, slave in slaves.items():
            copies.note_report(
                *(name, slave.acknowledged, now),
                tables=slave.tables,
                may_join=slave.is_replica and slave.counts,
            )
            if self.connected.get(name) is not slave:
                self.connected[name] = slave
                self.on_change("connected", name)
        self._confirm()
        awaited = max((each.awaits_confirmed for each in slaves.values()), default=0)
        needed = log.max_offset if self._syncs else awaited
        self.wanted_sync = needed if flushed < needed else 0

    def begin_change(self) -> frozenset[str] | None:
        """Return the set that is to be published, unless one is being published; None: it is. Call
        ``end_change`` then."""
        names = self.copies.wanted(self._clock())
        if names is None or self._is_publishing:
            return None
        self.copies.begin(names)  # before another acknowledgement counts
        self._is_publishing = True
        return names

    def end_change(self, names: frozenset[str], *, is_published: bool) -> None:
        """Note that a publication has ended. Where it failed, it may have taken effect."""
        self._is_publishing = False
        if not is_published:
            return
        before = self.copies.names
        self.copies.settle(names, self._clock())
        for name in sorted(names - before):
            self.on_change("joined", name)
        for name in sorted(before - names):
            self.on_change("left", name)
        self._confirm()
        self._notify()

    def note_tables(self) -> None:
        """Call the listeners of the connections if more of the tables are on all copies."""
        if self._connections is not None and self.copies.tables_replicated > self._tables:
            self._tables = self.copies.tables_replicated
            self._notify()

    def _notify(self) -> None:
        if self._connections is not None:
            self._connections.notify()

    def _confirm(self) -> None:
        found = Confirmation(self.copies.confirmed, len(self.copies.names))
        if found != self._confirmed:
            self._confirmed = found
            self._store.confirm(*found)
            if self._connections is not None:
                self._connections.confirm(found)
