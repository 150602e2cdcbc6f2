"""Promises of the replicas of a shard, and the invariants that every schedule keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.shard.replica_log import ReplicaLog

Record = tuple[int, int]
"""Epoch in which it was put, and its number."""
LogPlace = tuple[int, Record]
"""A record with its offset."""


class Broken(AssertionError):
    """A shard broke a promise."""


@dataclass
class Ledger:
    """Acknowledgements and reads of one schedule, each held against all others."""

    replicated: dict[int, Record] = field(default_factory=dict)
    """Records that were acknowledged as replicated, by offset."""
    leaders: dict[int, str] = field(default_factory=dict)
    """The process that acknowledges in an epoch."""
    newest_epoch: int = 0
    reads: dict[int, Record] = field(default_factory=dict)
    """Records that readers saw below the confirmed offset."""
    put: set[Record] = field(default_factory=set)
    """All that was ever put, acknowledged or not."""
    changes: set[int] = field(default_factory=set)
    """Numbers of the changes of tables that were acknowledged."""
    deleted_below: int = 0
    """Offset of the last deletion of a topic that was acknowledged."""
    lost: set[Record] = field(default_factory=set)
    """Records that one log at least lost with the power or the volume of its machine."""

    def note_leader(self, epoch: int, process: str, log: ReplicaLog) -> None:
        """Note that a process begins to lead with a log and tables. Raises Broken where it lacks a
        record or a change, has tables ahead of its log, or another process leads in the epoch."""
        leader = self.leaders.setdefault(epoch, process)
        self.newest_epoch = max(self.newest_epoch, epoch)
        if leader != process:
            raise Broken(f"{leader} and {process} both lead in epoch {epoch}")
        who = f"{process}, which leads in epoch {epoch},"
        self.check_has_all(who, log.records)
        self.check_tables(who, log)

    def acknowledge_synced(self, epoch: int, process: str) -> None:
        """Note that a leader acknowledges what is on its own disk. Raises Broken."""
        if self.leaders.get(epoch) != process:
            raise Broken(f"{process} acknowledges in epoch {epoch} of {self.leaders.get(epoch)}")
        if epoch < self.newest_epoch:
            raise Broken(
                f"{process} acknowledges in epoch {epoch} after epoch {self.newest_epoch} began"
            )

    def acknowledge(self, epoch: int, process: str, offset: int, record: Record) -> None:
        """Note that a leader acknowledges a record as replicated. Raises Broken."""
        self.acknowledge_synced(epoch, process)
        found = self.replicated.setdefault(offset, record)
        if found != record:
            raise Broken(f"offset {offset} was acknowledged with {found}, and now with {record}")

    def acknowledge_change(self, epoch: int, process: str, number: int, deleted: int) -> None:
        """Note that a leader acknowledges a change of a table, after a topic was deleted below an
        offset. Raises Broken."""
        self.acknowledge_synced(epoch, process)
        self.changes.add(number)
        self.deleted_below = max(self.deleted_below, deleted)

    def check_cut(self, who: str, log: Mapping[int, Record], end: int) -> None:
        """Raise Broken where a log is about to be cut at ``end``, and has a record behind it that
        was acknowledged."""
        for offset, record in self.replicated.items():
            if offset >= end and log.get(offset) == record:
                raise Broken(f"{who} cuts {record} at offset {offset}, which was acknowledged")

    def check_tables(self, who: str, log: ReplicaLog) -> None:
        """Raise Broken unless tables have all that was acknowledged, and are not ahead of their
        log."""
        self.check_has_changes(who, log.changes)
        self.check_refers(who, log)
        self.check_has_deletion(who, log)

    def check_has_changes(self, who: str, changes: Collection[int]) -> None:
        """Raise Broken unless tables have all changes that were acknowledged."""
        if missing := self.changes.difference(changes):
            raise Broken(f"{who} lacks {len(missing)} changes of tables that were acknowledged")

    def check_has_deletion(self, who: str, log: ReplicaLog) -> None:
        """Raise Broken unless a log has the last deletion of a topic that was acknowledged."""
        if log.deleted_below < self.deleted_below:
            raise Broken(
                f"{who} has a topic deleted below {log.deleted_below}, where a deletion below "
                f"{self.deleted_below} was acknowledged"
            )

    def check_refers(self, who: str, log: ReplicaLog) -> None:
        """Raise Broken where tables refer to a record that a log lacks: messages would be skipped,
        or another one's offset taken for that of one that was consumed."""
        if log.refers_to is None:
            return
        offset, record = log.refers_to
        if (found := log.records.get(offset)) != record:
            raise Broken(f"{who} has tables that refer to {record} at {offset}, where {found} is")

    def read(self, reader: str, offset: int, record: Record) -> None:
        """Note that a reader saw a record below the confirmed offset. Raises Broken."""
        found = self.reads.setdefault(offset, record)
        if found != record:
            raise Broken(f"{reader} reads {record} at offset {offset}, where {found} was read")

    def check_has_all(self, who: str, log: Mapping[int, Record]) -> None:
        """Raise Broken unless a log has all that was acknowledged, at its offset."""
        for offset, record in self.replicated.items():
            found = log.get(offset)
            if found != record:
                raise Broken(
                    f"{who} has {found} at offset {offset}, where {record} was acknowledged"
                )

    def check_final(
        self, logs: Mapping[str, Mapping[int, Record]], quarantine: Collection[Record]
    ) -> None:
        """Raise Broken unless all logs are equal and have what was acknowledged and read, and what
        they lack is in ``quarantine``."""
        (first, log), *others = logs.items()
        for name, other in others:
            if other != log:
                at = min(offset for offset, _ in log.items() ^ other.items())
                raise Broken(f"the logs of {first} and {name} differ from offset {at} on")
        self.check_has_all("each replica", log)
        for offset, record in self.reads.items():
            if log.get(offset) != record:
                raise Broken(f"{record} was read at offset {offset}, and is not in the final log")
        missing = self.put - set(log.values()) - set(quarantine) - self.lost
        if missing:
            raise Broken(f"{sorted(missing)} are neither in the log nor in quarantine")
