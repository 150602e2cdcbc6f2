"""A replica of a shard: the code of store-writer, over simulated sockets, threads, disks and time.

What a replica decides, sends and acknowledges is production's. ``Elected``, which runs the roles,
``Follower``, ``HaServer``, ``Slave`` and ``InSyncWatch``, which have sockets and timers, have their
counterparts here, in ``follower`` and in ``leader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mqstore.storage.replication import Keys
from mqstore.storage.replication.election import Addresses, Candidate, ElectionError, Lease, Margins
from mqstore.storage.replication.roles import (
    Ended,
    Following,
    Leading,
    Role,
    Waiting,
    next_role,
    why_not_take,
)
from tests.simulation.shard.events import Events, Machine, Process
from tests.simulation.shard.follower import SimulatedFollower
from tests.simulation.shard.leader import PORT, SimulatedLeader
from tests.simulation.shard.leases import LeaseClient, LeaseService
from tests.simulation.shard.ledger import Ledger
from tests.simulation.shard.network import Network
from tests.simulation.shard.replica_log import ReplicaLog

MARGINS: Final = Margins(duration_s=3.0, renewal_deadline_s=2.25, retry_s=0.75)
"""Half of the default times, so that a schedule is short; the deadline is the latest allowed."""
SYNC_MAX_S: Final = (0.01, 0.1, 0.5)
"""Longest time of a sync, of which each machine has one."""
START_S: Final = 0.5


@dataclass(slots=True)
class Surroundings:
    """Objects that the replicas of a shard share."""

    events: Events
    network: Network
    leases: LeaseService
    ledger: Ledger
    founder: str
    syncs: bool = True
    """Whether followers acknowledge what is on their disks, or in their page caches: they do not
    lose power then."""
    volumes: dict[str, Volume] = field(default_factory=dict)
    """By name."""
    next_number: int = 0

    def check_joining(self, names: Iterable[str]) -> None:
        """Raise Broken unless replicas that are about to be in sync have all that has a reply."""
        for name in names:
            volume = self.volumes[name.partition("/")[0]]
            if name == volume.replica_name:  # else it was lost just now
                self.ledger.check_has_all(name, volume.log.records)
                self.ledger.check_has_changes(name, volume.log.changes)

    def nonce(self) -> str:
        """Return a nonce for a proof."""
        return f"{self.events.rng.getrandbits(256):064x}"

    def keys(self) -> Keys:
        """Return the secret of the replicas."""
        return (b"secret",)


class Volume:
    """A machine with a volume, and the process that runs on it, if any."""

    def __init__(
        self, shard: Surroundings, name: str, rate: float, new_log: Callable[[], ReplicaLog]
    ) -> None:
        """``rate``: see ``Machine``; ``new_log`` returns the log of an empty volume."""
        self.shard = shard
        self.machine = Machine(shard.events, name, rate)
        self._new_log = new_log
        self.log = new_log()
        self.sync_s = shard.events.rng.choice(SYNC_MAX_S)
        self.incarnation = 0
        """Number of volumes before this one."""
        self.processes = 0
        self.replica: SimulatedReplica | None = None

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    @property
    def replica_name(self) -> str:
        """Name of the replica, with its volume."""
        return f"{self.name}/{self.incarnation}"

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.replica is None:
            self.processes += 1
            self.machine.is_up = True
            self.replica = SimulatedReplica(self)

    def end(self, *, power: bool) -> None:
        """End the process at once; with ``power`` lose some of what was not synced, too."""
        leads = self.replica is not None and self.replica.leading is not None
        keeps_all = not (self.shard.syncs or leads)
        if power:
            self.machine.is_up = False
        if self.replica is not None:
            process = self.replica.process
            self.shard.network.end_process(process, silent=power)
            process.alive = False
            self.replica = None
            if not power or keeps_all:
                self.log.kill()
        if power and not keeps_all:
            self.shard.ledger.lost |= self.log.lose_power(self.shard.events.rng)

    def lose(self) -> None:
        """Lose the volume: the next process finds an empty one."""
        self.end(power=True)
        self.shard.ledger.lost |= {*self.log.records.values(), *self.log.quarantine}
        self.log = self._new_log()
        self.incarnation += 1


class SimulatedReplica:
    """One process."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.shard = volume.shard
        self.log = volume.log
        self.process = Process(volume.machine)
        self.name = volume.replica_name
        self.id = f"{self.name}#{volume.processes}"
        self.role: Role = Waiting()
        self.leading: SimulatedLeader | None = None
        self.following: SimulatedFollower | None = None
        self._is_changing = False
        """Whether a change of the role waits for what the former one still does."""
        self._client = LeaseClient(self.shard.leases, self.process)
        self.candidate = Candidate(
            self._client,
            self.name,
            Addresses(log=f"{volume.name}:{PORT}"),
            self._why_not_take,
            MARGINS,
            self._client.monotonic,
            lambda: self.log.store.epochs.history.newest,
        )
        self.log.open(None, self.process.monotonic)
        self.process.after(self.shard.events.rng.random(), self._step)

    def sync_time(self) -> float:
        """Return the time that the next sync takes."""
        return self.volume.sync_s * self.shard.events.rng.random()

    def use_lease(self, call: Callable[[], object]) -> float:
        """Run a call of the candidate that uses the lease, and nothing where it fails; returns the
        seconds that it took, negative where it failed."""
        self._client.begin_step()
        try:
            call()
        except ElectionError:
            return -self._client.end_step() or -1e-9
        return self._client.end_step()

    def release(self) -> None:
        """End as a graceful stop does: release the lease first."""
        self.use_lease(self.candidate.release)
        self.end()

    def end(self) -> None:
        """End the process by itself; it starts again soon."""
        volume = self.volume
        volume.end(power=False)
        self.shard.events.after(START_S, volume.start)

    def _why_not_take(self, lease: Lease | None) -> str | None:
        return why_not_take(
            lease,
            self.name,
            is_founder=self.volume.name == self.shard.founder,
            newest_epoch=self.log.store.epochs.history.newest,
        )

    def _step(self) -> None:
        pauses: list[float] = []
        spent = abs(self.use_lease(lambda: pauses.append(self.candidate.step())))
        self.process.after(spent, self._take_role)
        self.process.after(spent + pauses[0], self._step)

    def _take_role(self) -> None:
        candidate = self.candidate
        found = next_role(self.role, self.name, candidate.lease, leads=candidate.leads)
        if found == self.role or self._is_changing:
            return
        if isinstance(found, Ended):
            self.end()
        elif isinstance(found, Following):
            self.role = found
            self._stop_following(partial(self._follow, found))
        elif isinstance(found, Leading):
            self._stop_following(partial(self._lead, found))

    def _stop_following(self, then: Callable[[], object]) -> None:
        following, self.following = self.following, None
        self._is_changing = True
        then() if following is None else following.close(then)

    def _follow(self, role: Following) -> None:
        self._is_changing = False
        self.following = SimulatedFollower(self, role.addresses.log)

    def _lead(self, role: Leading) -> None:
        self._is_changing = False
        self.role = role
        self.log.open(role.epoch, self.process.monotonic)
        if self.candidate.leads_in(role.epoch):  # else the lease was lost meanwhile
            self.shard.ledger.note_leader(role.epoch, self.id, self.log)
        self.leading = SimulatedLeader(self, role.epoch)
