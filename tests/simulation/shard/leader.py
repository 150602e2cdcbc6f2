"""The leader's part of a simulated replica: ``Connections``, their sessions, the copies in sync and
the waits of replies, with connections, threads and syncs of simulated time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from mqstore.storage.replication import (
    Connections,
    InSyncLook,
    InSyncSet,
    LeaderOptions,
    LeaderSession,
    Peer,
    Reading,
    SlaveRefused,
)
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.replication.replica_waiter import ReplicaWaiter
from mqstore.writer.waits import DISK, REPLICA, WaitError, reply_waiters
from tests.simulation.shard.ledger import Record
from tests.simulation.shard.loop import SimulatedFlush, SimulatedLoop
from tests.simulation.shard.network import End

if TYPE_CHECKING:
    from tests.simulation.shard.replica import SimulatedReplica

PORT: Final = 10_912
BEHIND_MAX_S: Final = 1.5
"""haMaxTimeSlaveNotCatchup."""
MIN_IN_SYNC: Final = 2
"""minInSyncReplicas."""
LOOK_S: Final = 0.3
"""Time between two looks at the in-sync set, and between two heartbeats."""
SILENCE_MAX_S: Final = 2.0
"""haHousekeepingInterval."""
REPLY_S: Final = 30.0
"""slaveTimeout."""
READ_S: Final = 0.004
"""Longest time of a read, and of the way to its thread."""
BATCH_SIZES: Final = (24, 72, 704)
"""haTransferBatchSize, of which each process has one: whole records of a log in memory."""


class _Admission:
    """Admits all that have the secret."""

    def may_connect(self, address: str) -> bool:
        return True

    def admits_slave(self, address: str) -> bool:
        return False

    def counts(self, address: str, name: str | None) -> bool:
        return name is not None


def _warn(event: str, *, of: str = "", **figures: object) -> None:
    """Keep warnings to itself."""


class SimulatedLeader:
    """Does as ``Leader``, ``HaServer``, ``InSyncWatch`` and the waits of ``WriterService``."""

    def __init__(self, replica: SimulatedReplica, epoch: int) -> None:
        self.replica = replica
        self.process = replica.process
        self.log = replica.log
        self.epoch = epoch
        lease = replica.candidate.lease
        assert lease is not None
        store, clock = self.log.store, self.process.monotonic
        options = LeaderOptions(
            housekeeping_s=SILENCE_MAX_S,
            batch_size=replica.shard.events.rng.choice(BATCH_SIZES),
            from_last_segment=False,
            nonce=replica.shard.nonce,
            keys=replica.shard.keys,
        )
        self.connections = Connections(store, replica.name, options, _Admission(), clock, _warn)
        self.copies = InSyncSet(replica.name, lease.in_sync, behind_max_s=BEHIND_MAX_S, now=clock())
        self._look = InSyncLook(self.copies, store, self.connections, clock)
        self.connections.listeners.append(self.look)
        self._flush = SimulatedFlush(self.process, self.log, replica.sync_time)
        self._is_syncing = False
        loop = SimulatedLoop(self.process)
        replicas = ReplicaWaiter(
            *(self.connections, REPLY_S, 1 << 40, lambda: self.copies.replicated), loop=loop
        )
        disk = DurabilityWaiter(self._flush, REPLY_S, loop=loop)
        self._waiters = reply_waiters(disk, replicas, lambda: self._leads)
        self._changes = ReplicaWaiter(
            *(self.connections, REPLY_S, 1 << 40, lambda: self.copies.tables_replicated), loop=loop
        )
        store.table_feed.on_change = self.connections.wake_all
        self._links: list[FollowerLink] = []
        replica.shard.network.listen(self.process, PORT, self._accept)
        self._tick()

    # producers

    def put(self) -> None:
        """Put a message that is to be replicated, if there are enough replicas in sync."""
        if len(self.copies.names) < MIN_IN_SYNC or not self._leads:
            return
        shard = self.replica.shard
        shard.next_number += 1
        record = self.epoch, shard.next_number
        offset = self.log.put(record)
        end = self.log.store.log.max_offset
        shard.ledger.put.add(record)
        self._waiters[DISK | REPLICA].add(end, partial(self._acknowledge, offset, record))
        self._waiters[DISK].add(end, self._acknowledge_synced)

    def _acknowledge(self, offset: int, record: Record, error: WaitError | None) -> None:
        if error is None:
            shard = self.replica.shard
            shard.ledger.acknowledge(self.epoch, self.replica.id, offset, record)

    def _acknowledge_synced(self, error: WaitError | None) -> None:
        if error is None:
            self.replica.shard.ledger.acknowledge_synced(self.epoch, self.replica.id)

    def delete_topic(self) -> None:
        """Delete a topic: a change of tables that is sent before the log that follows it."""
        if self._leads:
            self.log.delete_topic()
            self.change_tables()

    def change_tables(self) -> None:
        """Change a table: as ``WriterService.settle_change``, the reply waits."""
        if not self._leads:
            return
        shard = self.replica.shard
        shard.next_number += 1
        number, deleted = shard.next_number, self.log.deleted_below
        flushed = self.log.store.log.flushed_offset
        places = (each for each in self.log.records.items() if each[0] < flushed)
        self.log.change(number, max(places, default=None))
        self.look()
        forced = self.log.store.table_feed.forced
        self._changes.add(forced, partial(self._acknowledge_change, number, deleted))

    def _acknowledge_change(self, number: int, deleted: int, error: WaitError | None) -> None:
        if error is None and self._leads:
            ledger = self.replica.shard.ledger
            ledger.acknowledge_change(self.epoch, self.replica.id, number, deleted)

    @property
    def _leads(self) -> bool:
        return self.replica.candidate.leads_in(self.epoch)

    # copies in sync

    def look(self) -> None:
        """Give the in-sync set what is known, and sync what it waits for."""
        self._look.look()
        if (wanted := self._look.wanted_sync) and not self._is_syncing:
            self._is_syncing = True
            self._flush.request(wanted).add_done_callback(self._look_after_sync)

    def _look_after_sync(self, _: object) -> None:
        self._is_syncing = False
        self.look()

    def _tick(self) -> None:
        self.look()
        names = self._look.begin_change()
        if names is not None:
            self._publish(names)
        self._look.note_tables()
        self.connections.send_now()
        for link in list(self._links):
            link.tick()
        self.process.after(LOOK_S, self._tick)

    def _publish(self, names: frozenset[str]) -> None:
        replica = self.replica
        held = replica.shard.leases.lease
        if held is not None and held.epoch == self.epoch:  # else the lease refuses it
            replica.shard.check_joining(names - self.copies.names)
        spent = replica.use_lease(lambda: replica.candidate.publish(names))
        is_done = spent >= 0
        self.process.after(abs(spent), lambda: self._look.end_change(names, is_published=is_done))

    # connections

    def _accept(self, end: End) -> None:
        host = end.peer.process.name
        session = self.connections.connect(Peer(f"{host}:1", host))
        assert session is not None
        link = FollowerLink(self, session, end)
        self._links.append(link)

    def forget(self, link: FollowerLink) -> None:
        """Note that a connection has ended."""
        self.connections.note_end(link.session)
        if link in self._links:
            self._links.remove(link)


class FollowerLink:
    """The socket and the thread of one session. Does as ``Slave``."""

    def __init__(self, leader: SimulatedLeader, session: LeaderSession, end: End) -> None:
        self.session = session
        self._leader = leader
        self._process = leader.process
        self._end = end
        self._is_sending = False
        self._has_more = False
        session.wake = self._wake
        session.disconnect = self._close
        end.on_receive = self._receive
        end.on_lost = lambda: leader.forget(self)

    def tick(self) -> None:
        """Send a heartbeat; close a connection on which nothing arrives."""
        if self._process.monotonic() > self.session.deadline:
            self._close()
        elif self.session.requested is not None and not self._is_sending:
            self._end.send(self.session.heartbeat())

    def _close(self) -> None:
        self._end.close()
        self._leader.forget(self)

    def _receive(self, data: object) -> None:
        assert isinstance(data, bytes)
        try:
            for step in self.session.receive(data):
                self._end.send(step.reply(step.run()))
        except SlaveRefused:
            self._close()

    # what is sent, a turn after the other

    def _wake(self) -> None:
        self._has_more = True
        if not self._is_sending and self.session.requested is not None:
            self._is_sending = True
            self._process.after(0, self._begin_turn)

    def _begin_turn(self) -> None:
        self._has_more = False
        if confirmation := self.session.begin_turn():
            self._end.send(confirmation)
        reading = self._try(self.session.take)
        if reading is not None:
            self._send(reading)
        else:
            self._later(self._read)

    def _read(self) -> None:
        reading = self._try(self.session.read)
        if reading is not None:
            self._later(partial(self._send, reading))

    def _try(self, read: Callable[[], Reading | None]) -> Reading | None:
        try:
            return read()
        except SlaveRefused:
            self._close()
            return None

    def _send(self, reading: Reading) -> None:
        has_sent = False
        for data, _ in self.session.frames(reading):
            self._end.send(data)
            has_sent = True
        if has_sent or self._has_more:
            self._later(self._begin_turn)
        else:
            self._is_sending = False

    def _later(self, action: Callable[[], object]) -> None:
        if self._end.is_open:
            seconds = READ_S * self._leader.replica.shard.events.rng.random()
            self._process.after(seconds, action)
