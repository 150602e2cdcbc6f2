"""Replicas of a shard as processes, which elect their leader by a lease in a directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mqstore.client import Client, ClientError, Replication, Target
from mqstore.service.file_lease import FileLease
from mqstore.storage.replication.election import Addresses, Lease
from tests.free_ports import free_port
from tests.services.service_processes import Process, service

PATIENCE_S: Final = 90.0
NAMES: Final = "replica-0 replica-1 replica-2"
SETTINGS: Final = {
    "election_lease_duration": 80_000,
    "election_renewal_deadline": 60_000,
    "election_retry_interval": 200,
    "slave_timeout": 60_000,
}
"""A busy machine delays neither a renewal nor an acknowledgement for so long. Where a leader is
killed, ``Replicas.kill`` ends its lease."""


@dataclass
class Replica:
    """One of them; its ports stay the same over restarts."""

    number: int
    root: Path
    settings: dict[str, Any]
    port: int = field(default_factory=free_port)
    ha: int = field(default_factory=free_port)
    remoting: int = field(default_factory=free_port)
    process: Process | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def name(self) -> str:
        return f"replica-{self.number}"

    @property
    def proof(self) -> dict[str, Any]:
        """By default the secret of the replicas, which admits no other process."""
        if "ha_allowed_slaves" in self.settings:
            return {}
        secret = self.root / "secret"
        if not secret.exists():
            secret.write_text("a-secret-of-replicas\n", encoding="utf-8")
        return {"replica_secret_file": secret, "replica_names": NAMES}

    @property
    def store(self) -> Path:
        return self.root / f"store-{self.number}"

    def start(self) -> None:
        """Start its process, and wait until it serves."""
        given = {
            "election_lease": f"file:{self.root / 'lease'}",
            "founding_replica": "replica-0",
            "replica_name": self.name,
            **self.proof,
            "ha_listen_port": self.ha,
            "listen_port": self.remoting,
            "writer_port": self.port,
            **SETTINGS,
            **self.settings,
        }
        start = service(
            *(Target.WRITER, ["-m", "mqstore.writer"], self.store),
            port=self.port,
            status=None,
            **given,
        )
        self.process = self._stack.enter_context(start)

    def client(self, timeout_s: float = PATIENCE_S) -> Client:
        url = f"http://127.0.0.1:{self.port}"
        return Client(url, url, timeout_s=timeout_s)

    def replication(self) -> Replication | None:
        """Its state; None while it does not reply."""
        with self.client() as client:
            try:
                return client.replication()
            except ClientError:
                return None

    def await_state(self, is_so: Callable[[Replication], bool]) -> Replication:
        """Its state, once ``is_so`` holds for it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.replication()
            if found is not None and is_so(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    def ended(self) -> int:
        """The exit code of its process, which ends by itself."""
        assert self.process is not None
        return self.process.ended()[0]

    def close(self) -> None:
        self._stack.close()


@dataclass
class Replicas:
    """Those of one shard."""

    root: Path
    replicas: list[Replica]

    @property
    def lease(self) -> Lease | None:
        return FileLease(self.root / "lease").read()

    def leader(self, *others: Replica) -> Replica:
        """The replica that leads, once one does; not one of ``others``."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for each in self.replicas:
                if each not in others and each.process is not None:
                    found = each.replication()
                    if found is not None and found.role == "leader":
                        return each
            assert time.monotonic() < deadline, f"no leader: {self.lease}"
            time.sleep(0.02)

    def await_in_sync(self, count: int) -> Lease:
        """The lease, once so many replicas are in sync."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.lease
            if found is not None and found.holder and len(found.in_sync) == count:
                return found
            assert time.monotonic() < deadline, f"not {count} in sync: {found}"
            time.sleep(0.02)

    def kill(self, leader: Replica) -> None:
        """Kill the leader, and have its lease expired."""
        leader.kill()
        leases = FileLease(self.root / "lease")
        held = leases.read()
        assert held is not None
        leases.write(replace(held, holder="", addresses=Addresses(), former=held.holder))

    def leader_of(self, lease: Lease) -> Replica:
        return next(each for each in self.replicas if each.name == lease.holder.partition("/")[0])


@contextlib.contextmanager
def elected(root: Path, count: int, **settings: Any) -> Iterator[Replicas]:
    """Start replicas that elect a leader; all are in sync."""
    found = Replicas(root, [Replica(number, root, settings) for number in range(count)])
    try:
        for each in found.replicas:
            each.start()
        found.await_in_sync(count)
        yield found
    finally:
        for each in found.replicas:
            each.close()
