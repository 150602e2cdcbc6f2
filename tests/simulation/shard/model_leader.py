"""The leader's part of a model replica: takes messages, serves followers, acknowledges."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Final

from mqstore.storage.replication import InSyncSet
from tests.simulation.shard.ledger import Record
from tests.simulation.shard.messages import (
    Deletions,
    FollowerIntroduction,
    Frame,
    LeaderIntroduction,
    Report,
    Tables,
)
from tests.simulation.shard.model_tables import LogPlace
from tests.simulation.shard.network import End

if TYPE_CHECKING:
    from tests.simulation.shard.model_replica import ModelReplica

PORT: Final = 10_912
BEHIND_MAX_S: Final = 1.5
"""haMaxTimeSlaveNotCatchup."""
MIN_IN_SYNC: Final = 2
"""minInSyncReplicas."""
LOOK_S: Final = 0.3
"""Time between two looks at the in-sync set, and between two heartbeats."""
SILENCE_MAX_S: Final = 2.0
"""A connection on which nothing arrives for so long is closed."""


class ModelLeader:
    """Does as ``Leader``, ``InSyncWatch`` and ``ReplicaWaiter``."""

    def __init__(self, replica: ModelReplica, epoch: int) -> None:
        self.replica = replica
        self.process = replica.process
        self.log = replica.log
        self.epoch = epoch
        lease = replica.candidate.lease
        assert lease is not None
        self.copies = InSyncSet(
            replica.name,
            lease.in_sync,
            behind_max_s=BEHIND_MAX_S,
            now=self.process.monotonic(),
        )
        self.links: dict[str, FollowerLink] = {}
        """Connections of followers that have introduced themselves, by name."""
        self._is_publishing = False
        self._waiting: list[tuple[int, int, Record]] = []
        self.tables_version = 1
        self.deletions = 1
        """Version of the deletions."""
        self._changes: list[tuple[int, int, int]] = []
        """Version and number of each change of tables that waits for its reply, and the offset
        below which a topic was deleted then."""
        network = replica.shard.network
        network.listen(self.process, PORT, lambda end: FollowerLink(self, end))
        self._tick()

    def put(self) -> None:
        """Put a message that is to be replicated, if there are enough replicas in sync."""
        if len(self.copies.names) < MIN_IN_SYNC or not self._leads:
            return
        shard = self.replica.shard
        shard.next_number += 1
        record = self.epoch, shard.next_number
        offset = self.log.put(record)
        end = self.log.end
        shard.ledger.put.add(record)
        self._waiting.append((offset, end, record))
        self.process.after(self.replica.sync_time(), lambda: self._flush(end))
        for link in list(self.links.values()):
            link.send()

    def delete_topic(self) -> None:
        """Delete a topic: a change of tables that is sent before the log that follows it."""
        if self._leads:
            self.log.delete_topic()
            self.deletions += 1
            for link in list(self.links.values()):
                link.send_deletions()
            self.change_tables()

    def change_tables(self) -> None:
        """Change a table, durably: as ``WriterService.settle_change``, the reply waits."""
        if not self._leads:
            return
        shard, tables = self.replica.shard, self.replica.volume.tables
        shard.next_number += 1
        tables.changes.add(shard.next_number)
        tables.refers_to = self.last_record(self.log.flushed)
        tables.save()
        self.tables_version += 1
        self._changes.append((self.tables_version, shard.next_number, self.log.deleted_below))
        for link in list(self.links.values()):
            link.send_tables()
        self.look()

    def last_record(self, end: int) -> LogPlace | None:
        """Return the last record of the log below an offset; None without one."""
        return max((each for each in self.log.records.items() if each[0] < end), default=None)

    def look(self) -> None:
        """Give the in-sync set what is known, and acknowledge what is replicated."""
        now, copies = self.process.monotonic(), self.copies
        copies.note_own(self.log.end, self.log.flushed, now, tables=self.tables_version)
        for name, link in self.links.items():
            copies.note_report(name, link.flushed, now, tables=link.tables, may_join=True)
        self.replica.confirmed = copies.confirmed
        for link in list(self.links.values()):
            link.send_tables()
        if copies.replicated is not None:
            self._acknowledge(min(copies.replicated, self.log.flushed))
        while self._changes and self._changes[0][0] <= copies.tables_replicated:
            _, number, deleted = self._changes.pop(0)
            if self._leads:
                ledger = self.replica.shard.ledger
                ledger.acknowledge_change(self.epoch, self.replica.id, number, deleted)

    @property
    def _leads(self) -> bool:
        return self.replica.candidate.leads_in(self.epoch)

    def _flush(self, end: int) -> None:
        self.log.sync(end)
        if self._leads:  # a message with durability sync
            self.replica.shard.ledger.acknowledge_synced(self.epoch, self.replica.id)
        self.look()

    def _acknowledge(self, reached: int) -> None:
        while self._waiting and self._waiting[0][1] <= reached:
            offset, _, record = self._waiting.pop(0)
            if self._leads:
                ledger = self.replica.shard.ledger
                ledger.acknowledge(self.epoch, self.replica.id, offset, record)

    def _tick(self) -> None:
        self.look()
        names = self.copies.wanted(self.process.monotonic())
        if names is not None and not self._is_publishing:
            self._publish(names)
        for link in list(self.links.values()):
            link.tick()
        self.process.after(LOOK_S, self._tick)

    def _publish(self, names: frozenset[str]) -> None:
        held = self.replica.shard.leases.lease
        if held is not None and held.epoch == self.epoch:  # else the lease refuses it
            self.replica.shard.check_joining(names - self.copies.names)
        self.copies.begin(names)
        self._is_publishing = True
        replica = self.replica
        spent = replica.use_lease(lambda: replica.candidate.publish(names))
        self.process.after(abs(spent), lambda: self._end_publishing(names, is_done=spent >= 0))

    def _end_publishing(self, names: frozenset[str], *, is_done: bool) -> None:
        self._is_publishing = False
        if is_done:
            self.copies.settle(names, self.process.monotonic())
            self.look()


class FollowerLink:
    """The leader's side of a follower's connection."""

    def __init__(self, leader: ModelLeader, end: End) -> None:
        self.end = end
        self.flushed = 0
        """The end of what the follower has on its disk."""
        self.tables = 0
        """The version of the tables that it has."""
        self._leader = leader
        self._tables: Tables | None = None
        """Tables on their way."""
        self._tables_sent = self._deletions_sent = 0
        self._name: str | None = None
        self._sent = 0
        self._heard_at = leader.process.monotonic()
        end.on_receive = self._receive
        end.on_lost = self._lose
        end.send(LeaderIntroduction(leader.log.history))

    def send(self) -> None:
        """Send some of what the log has and the follower was not sent."""
        data = self._leader.log.read(self._sent)
        if data:
            self._send(data)

    def send_deletions(self) -> None:
        """Send the deletions of topics, unless the follower was sent them."""
        if self._deletions_sent < self._leader.deletions:
            self._deletions_sent = self._leader.deletions
            self.end.send(Deletions(self._leader.log.deletions()))

    def send_tables(self) -> None:
        """Send the tables, once the log that they refer to is sent and confirmed."""
        leader = self._leader
        if self._tables is None and leader.tables_version > self._tables_sent:
            changes = frozenset(leader.replica.volume.tables.changes)
            end = leader.log.end
            self._tables = Tables(leader.tables_version, changes, end, leader.last_record(end))
        held_at = min(self._sent, leader.copies.confirmed)
        if self._tables is not None and self._tables.position <= held_at:
            self.end.send(self._tables)
            self._tables_sent, self._tables = self._tables.version, None

    def tick(self) -> None:
        """Send more, or a heartbeat; close a connection on which nothing arrives."""
        if self._leader.process.monotonic() - self._heard_at > SILENCE_MAX_S:
            self.end.close()
            self._lose()
        else:
            self._send(self._leader.log.read(self._sent))

    def _send(self, data: Sized) -> None:
        self.send_deletions()
        self.end.send(Frame(self._sent, data, self._leader.copies.confirmed))
        self._sent += len(data)
        self.send_tables()

    def _receive(self, item: object) -> None:
        self._heard_at = self._leader.process.monotonic()
        if isinstance(item, FollowerIntroduction):
            self._begin(item)
        elif isinstance(item, Report):
            self.flushed, self.tables = item.flushed, item.tables
            self._leader.look()
            self.send()

    def _begin(self, follower: FollowerIntroduction) -> None:
        """Serve the follower in place of an earlier connection of it, if there is one."""
        former = self._leader.links.get(follower.name)
        if former is not None:
            former.end.close()
            former._lose()
        self._name, self._sent, self.flushed = follower.name, follower.end, follower.end
        self._leader.links[follower.name] = self
        self.send_deletions()
        self._leader.look()
        self.send()
        self.send_tables()

    def _lose(self) -> None:
        leader, name = self._leader, self._name
        if name is not None and leader.links.get(name) is self:
            del leader.links[name]
            leader.copies.note_lost(name)
