"""The lease of a shard as replicas reach it: late, not at all, or with the result unknown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mqstore.storage.replication.election import Lease, LeaseConflict, LeaseUnavailable
from tests.simulation.shard.events import Events, Process
from tests.simulation.shard.network import Network

SERVICE: Final = "lease"
"""Name of the machine that has the lease."""
CALL_MAX_S: Final = 0.7
"""Longest time of a call, after which its caller gives it up."""


class LeaseService:
    """The record. It is replaced only by a writer that has read its present version."""

    def __init__(self, events: Events, network: Network, fail_chance: float) -> None:
        """``fail_chance``: how often a call fails, before or after it took effect."""
        self.events = events
        self.network = network
        self.fail_chance = fail_chance
        self.lease: Lease | None = None
        self.on_doubt: Callable[[str], object] | None = None
        """If set, the next write that adds a replica in sync has no reply. Called with its name."""
        self._version = 0

    def replace(self, lease: Lease) -> Lease:
        """Replace the record. Raises LeaseConflict."""
        present = self.lease.version if self.lease is not None else ""
        if lease.version != present:
            raise LeaseConflict(f"the record has version {present}, not {lease.version}")
        self._version += 1
        self.lease = replace(lease, version=str(self._version))
        return self.lease


class LeaseClient:
    """``election.LeaseStore`` of one process: a call takes time of that process's thread."""

    def __init__(self, service: LeaseService, process: Process) -> None:
        self._service = service
        self._process = process
        self._spent = 0.0
        """Time that calls of this step have taken; the record is read and written at its begin."""

    def begin_step(self) -> None:
        """Begin a step of the candidate, whose calls take effect at the present time."""
        self._spent = -self._service.network.delay()

    def monotonic(self) -> float:
        """The clock as the candidate's thread sees it."""
        return self._process.monotonic() + self._spent * self._process.machine.rate

    def end_step(self) -> float:
        """End the step: the thread's clock is the machine's again. Returns the seconds it took."""
        spent, self._spent = max(0.0, self._spent), 0.0
        return spent

    def read(self) -> Lease | None:
        """See ``election.LeaseStore``."""
        self._reach()
        self._spent += self._service.network.delay()
        return self._service.lease

    def write(self, lease: Lease) -> Lease:
        """See ``election.LeaseStore``."""
        service, rng = self._service, self._service.events.rng
        self._doubt(lease)
        if rng.random() < service.fail_chance:
            self._write_late(lease)
        self._reach()
        written = service.replace(lease)
        if rng.random() < service.fail_chance or self._is_deaf():
            self._spent += CALL_MAX_S
            raise LeaseUnavailable("no reply, and the lease was written")
        self._spent += service.network.delay()
        return written

    def _doubt(self, lease: Lease) -> None:
        """Leave open whether a write took effect, if that is wanted of this one."""
        service, present = self._service, self._service.lease
        if service.on_doubt is None or present is None or present.holder != lease.holder:
            return
        added = sorted(set(lease.in_sync) - set(present.in_sync))
        if added:
            on_doubt, service.on_doubt = service.on_doubt, None
            if service.events.rng.random() < 0.5:
                service.replace(lease)
            on_doubt(added[0])
            self._spent += CALL_MAX_S
            raise LeaseUnavailable("no reply, and a replica that joins has ended")

    def _write_late(self, lease: Lease) -> None:
        """Have the request arrive after its caller has given it up."""
        service = self._service

        def arrive() -> None:
            if not self._is_mute():
                with suppress(LeaseConflict):
                    service.replace(lease)

        service.events.after(service.events.rng.random() * 2 * CALL_MAX_S, arrive)
        self._spent += CALL_MAX_S
        raise LeaseUnavailable("no reply in time")

    def _reach(self) -> None:
        service = self._service
        if self._is_mute() or self._is_deaf() or service.events.rng.random() < service.fail_chance:
            self._spent += CALL_MAX_S
            raise LeaseUnavailable("the lease cannot be reached")

    def _is_mute(self) -> bool:
        return self._service.network.is_blocked(self._process.name, SERVICE)

    def _is_deaf(self) -> bool:
        return self._service.network.is_blocked(SERVICE, self._process.name)
