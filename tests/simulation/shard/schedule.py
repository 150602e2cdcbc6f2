"""A schedule: three replicas, their faults, producers and readers, all from one seed."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.simulation.shard.events import Events
from tests.simulation.shard.faults import FAULTS_MAX, NAMES, Fault, Kind, draw
from tests.simulation.shard.leases import SERVICE, LeaseService
from tests.simulation.shard.ledger import Broken, Ledger
from tests.simulation.shard.memory_log import MemoryLog
from tests.simulation.shard.network import Network
from tests.simulation.shard.replica import SimulatedReplica, Surroundings, Volume
from tests.simulation.shard.replica_log import ReplicaLog
from tests.simulation.shard.store_log import StoreLog

FAULTS_AT: Final = (1.5, 9.0)
HEALED_AT: Final = 10.0
AGREES_WITHIN_S: Final = 30.0
LATE_S: Final = 4.0
"""Least time from a blackout to the start of the one machine that comes back late."""
STOPPED_S: Final = 5.0
"""Time for which a leader is stopped: another one leads at its end."""
PUT_INTERVAL_S: Final = 0.2
CHANGE_CHANCE: Final = 0.3
"""How often a message comes with a change of a topic."""
DELETION_CHANCE: Final = 0.1
"""How often a message comes with the deletion of its topic."""
READ_AT_ONCE: Final = 3
FAIL_CHANCES: Final = (0.0, 0.02, 0.2)
"""How often a call of the lease fails, of which each schedule has one."""
UNSYNCED_EACH, UNSYNCED = 5, 2
"""Seeds, by their remainder, of schedules whose followers acknowledge from their page caches."""
RATES: Final = (0.96, 1.04)
"""Slowest and fastest clock of a machine."""


class Schedule:
    """One schedule."""

    def __init__(self, seed: int, kind: type[MemoryLog] | type[StoreLog] = MemoryLog) -> None:
        self.events = events = Events(seed)
        rng = self._rng = events.rng
        self.faults = draw(rng, rng.randint(1, FAULTS_MAX), *FAULTS_AT)
        network = Network(events)
        leases = LeaseService(events, network, rng.choice(FAIL_CHANCES))
        self.ledger = Ledger()
        syncs = seed % UNSYNCED_EACH != UNSYNCED
        self.shard = Surroundings(events, network, leases, self.ledger, NAMES[0], syncs)
        self.volumes = self.shard.volumes
        for name in NAMES:
            self.volumes[name] = Volume(self.shard, name, rng.uniform(*RATES), lambda: kind(rng))
        self._is_healed = False
        self._healed_at = HEALED_AT
        self._absent: Volume | None = None
        """Its process starts again once the others go on without it."""
        for volume in self.volumes.values():
            volume.start()
        for fault in self.faults:
            events.at(fault.at, partial(self._strike, fault))
        self._use()

    def run(self) -> None:
        """Run the schedule. Raises Broken, or what the code raises."""
        self.events.run_until(HEALED_AT)
        self._heal()
        self._go_on_without_absent()
        while not self._agrees():
            if self.events.now > self._healed_at + AGREES_WITHIN_S:
                if self._needs_operator:
                    return
                raise Broken(f"no agreement within {AGREES_WITHIN_S:g} s after the last fault")
            self.events.run_until(self.events.now + 0.5)
        logs = {name: volume.log for name, volume in self.volumes.items()}
        self.ledger.check_final(
            {name: log.records for name, log in logs.items()},
            {record for log in logs.values() for record in log.quarantine},
        )
        for name, log in logs.items():
            self.ledger.check_tables(name, log)
        first, *others = logs.values()
        for other in others:
            first.check_equal(other)

    # producers and readers

    def _use(self) -> None:
        for volume in self.volumes.values():
            replica = volume.replica
            if replica is not None:
                replica.process.after(0, partial(self._use_one, replica))
        if not self._is_healed:
            self.events.after(self._rng.random() * 2 * PUT_INTERVAL_S, self._use)

    def _use_one(self, replica: SimulatedReplica) -> None:
        if replica.leading is not None:
            replica.leading.put()
            if self._rng.random() < CHANGE_CHANCE:
                replica.leading.change_tables()
            if self._rng.random() < DELETION_CHANCE:
                replica.leading.delete_topic()
        readable = replica.log.readable
        below = [each for each in replica.log.records.items() if each[0] < readable]
        for offset, record in below[-READ_AT_ONCE:]:
            self.ledger.read(replica.id, offset, record)

    # faults

    def _strike(self, fault: Fault) -> None:
        network = self.shard.network
        target, other = self._named(fault.target), self._named(fault.other)
        volume = self.volumes[target]
        match fault.kind:
            case Kind.KILL | Kind.POWER:
                volume.end(power=fault.kind is Kind.POWER)
                self.events.after(fault.seconds, partial(self._start, volume))
            case Kind.BLACKOUT:
                for each in self.volumes.values():
                    each.end(power=True)
                    is_late = each is volume
                    seconds = fault.seconds + LATE_S if is_late else self._rng.random()
                    self.events.after(seconds, partial(self._start, each))
            case Kind.PAUSE:
                if volume.replica is not None:
                    volume.replica.process.stop(min(fault.seconds, HEALED_AT - fault.at))
            case Kind.CUT:
                network.block(target, other)
                if self._rng.random() < 0.5:
                    network.block(other, target)
            case Kind.ISOLATE:
                for name in (*NAMES, SERVICE):
                    network.block(target, name)
                    network.block(name, target)
            case Kind.HEAL:
                network.heal()
            case Kind.BREAK:
                network.break_between(target, other)
            case Kind.MISDIRECT:
                self._misdirect(target, self.volumes[other])
            case Kind.DOUBT:
                self.shard.leases.on_doubt = self._lose_joining
            case Kind.RELEASE:
                if volume.replica is not None:
                    volume.replica.release()
            case Kind.LOSE_VOLUME:
                volume.lose()
                self.events.after(fault.seconds, partial(self._start, volume))

    def _misdirect(self, target: str, leader: Volume) -> None:
        network, events = self.shard.network, self.events
        if leader.replica is None or leader.name == target:
            return
        seconds = min(STOPPED_S, HEALED_AT - events.now)
        leader.replica.process.stop(seconds)
        events.after(seconds - 0.2, partial(network.redirect, target, leader.name))
        events.after(seconds + 0.5, partial(network.direct, target))

    def _lose_joining(self, name: str) -> None:
        """End the process of a replica whose joining is in doubt, until the others go on."""
        volume = self.volumes[name.partition("/")[0]]
        if self._absent is None and not self._needs_operator:
            self._absent = volume
            volume.end(power=False)

    def _start(self, volume: Volume) -> None:
        if volume is not self._absent:
            volume.start()

    def _go_on_without_absent(self) -> None:
        """Wait until the others acknowledge a message, if one of them may lead; then start the one
        that is absent."""
        absent, leases, ledger = self._absent, self.shard.leases, self.ledger
        if absent is None:
            return
        in_sync = () if leases.lease is None else leases.lease.in_sync
        others = [name for name in in_sync if name.partition("/")[0] != absent.name]
        last = self.shard.next_number
        while others and all(number <= last for _, number in ledger.replicated.values()):
            if self.events.now > HEALED_AT + AGREES_WITHIN_S:
                raise Broken(f"nothing is acknowledged without {absent.name}")
            for volume in self.volumes.values():
                if volume.replica is not None and volume.replica.leading is not None:
                    volume.replica.leading.put()
            self.events.run_until(self.events.now + 0.5)
        self._absent = None
        absent.start()
        self._healed_at = self.events.now

    def _named(self, name: str) -> str:
        """Return the machine of a name, which may be that of the present leader."""
        if name != "leader":
            return name
        lease = self.shard.leases.lease
        return (lease.holder.partition("/")[0] if lease is not None else "") or NAMES[0]

    @property
    def _needs_operator(self) -> bool:
        """Whether it is right that no replica leads: the only one in sync has lost its volume."""
        return any(fault.kind is Kind.LOSE_VOLUME for fault in self.faults)

    # the end

    def _heal(self) -> None:
        self._is_healed = True
        self.shard.network.heal()
        self.shard.network.slow_chance = 0.0
        self.shard.leases.fail_chance, self.shard.leases.on_doubt = 0.0, None
        for volume in self.volumes.values():
            self.events.after(1.0, partial(self._start, volume))

    def _agrees(self) -> bool:
        """Whether one replica leads, all are in sync, and have the same log on their disks."""
        replicas = [volume.replica for volume in self.volumes.values()]
        leaders = [each.leading for each in replicas if each is not None and each.leading]
        if None in replicas or len(leaders) != 1:
            return False
        leader = leaders[0]
        return leader.replica.candidate.leads and (
            len(leader.copies.names) == len(NAMES)
            and all(_is_as(volume.log, leader.log) for volume in self.volumes.values())
        )


def _is_as(log: ReplicaLog, leader: ReplicaLog) -> bool:
    """Whether a log has on its disk what the leader's has, and its tables."""
    end, history = leader.store.log.max_offset, leader.store.epochs.history
    own = log.store
    return (own.log.flushed_offset, own.epochs.history, set(log.changes)) == (
        end,
        history,
        set(leader.changes),
    )
