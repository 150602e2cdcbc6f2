"""Servers under measurement, on new stores: where they answer, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqstore.client import Client
from mqstore.storage.config import FlushDiskType
from tests.bench import exchanges, latencies, lean
from tests.bench.failures import SideError
from tests.bench.harness import Metric, Setting
from tests.bench.lean import Limits
from tests.bench.stores import fresh_directory
from tests.bench.workload import BODY_SIZE, QUEUES, TOPIC
from tests.free_ports import free_port
from tests.services import service_processes
from tests.services.service_processes import Run, running

REPLICA: Final = "follower"
COPIED_WITHIN_S: Final = 600.0
"""Longest wait for the copy of a leader or of a master."""


@dataclass(frozen=True)
class Server:
    """Processes that answer under an address: a URL of ours, a port of the peer's."""

    address: str
    process_ids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Processor time so far, by Linux's clock of another process (clock_getcpuclockid)."""
        return sum(time.clock_gettime(~each << 3 | 2) for each in self.process_ids)


def metrics(name: str, unit: str, costs: dict[str, str], record_size: int | None) -> list[Metric]:
    """The metrics of a row: its rate, ``costs`` by key, and latencies; ``unit`` names one counted
    thing."""
    rate = Metric("rate", name, f"{unit}s/s", record_size=record_size)
    each = [
        Metric(key, f"{name}, {what}", f"µs a {unit}", higher_is_better=False)
        for key, what in costs.items()
    ]
    return [rate, *each, *latencies.metrics(name)]


@contextmanager
def services(
    setting: Setting, flush: FlushDiskType = FlushDiskType.ASYNC, **settings: Any
) -> Iterator[Run]:
    """Run our services over an empty store that has the topic of the workload."""
    with (
        fresh_directory(setting.directory) as root,
        running(root / "store", flush_disk_type=flush.value, **settings) as run,
        run.client() as client,
    ):
        client.create_topic(TOPIC, queues=QUEUES)
        yield run


@contextmanager
def writer(setting: Setting, flush: FlushDiskType) -> Iterator[Server]:
    """Run ``services``, of which store-writer is measured."""
    with services(setting, flush) as run:
        yield Server(run.writer_url, (run.child("writer"),))


@contextmanager
def broker(
    setting: Setting, flush: FlushDiskType = FlushDiskType.ASYNC, *, names: int = 0
) -> Iterator[Server | None]:
    """Run the peer's broker over an empty store; None without a peer.

    With ``names`` a name server runs beside it on that port, which is then the address.
    """
    if setting.peer is None:
        yield None
        return
    with (
        fresh_directory(setting.directory) as root,
        setting.peer.broker(root, flush.value, names=names) as (port, process_id),
    ):
        yield Server(str(names or port), (process_id,))


@dataclass(frozen=True)
class Leader:
    """A leader that runs, and the port that followers connect to."""

    server: Server
    client: Client
    port: int


@contextmanager
def leader_of(store: Path, **settings: Any) -> Iterator[Leader]:
    """Run store-writer as the leader of a store, without followers yet."""
    ha = free_port()
    leading = {"ha_listen_port": ha, "listen_port": free_port(), "replica_name": "leader"}
    with (
        service_processes.writer(
            store, ha_allowed_slaves="127.0.0.1", **leading, **settings
        ) as process,
        Client(process.url, process.url) as client,
    ):
        yield Leader(Server(process.url, (process.process.pid,)), client, ha)


@contextmanager
def follower_of(leader: Leader, store: Path, **settings: Any) -> Iterator[Server]:
    """Run a follower of a leader over a store, once it is in sync."""
    settings |= {"broker_role": "SLAVE", "ha_master_address": f"127.0.0.1:{leader.port}"}
    settings |= {"status": "not-ready", "replica_name": REPLICA}
    with service_processes.writer(store, **settings) as process:
        _await(lambda: _is_in_sync(leader.client))
        yield Server(process.url, (process.process.pid,))


@contextmanager
def leader(setting: Setting, flush: FlushDiskType) -> Iterator[Server]:
    """Run a synchronous leader and its follower over empty stores; both are measured.

    ``flush`` is the follower's haFlushDiskType.
    """
    with (
        fresh_directory(setting.directory) as root,
        leader_of(root / "leader", broker_role="SYNC_MASTER") as first,
    ):
        first.client.create_topic(TOPIC, queues=QUEUES)
        with follower_of(first, root / "follower", ha_flush_disk_type=flush.value) as second:
            both = first.server.process_ids + second.process_ids
            yield Server(first.server.address, both)


@contextmanager
def master(setting: Setting) -> Iterator[Server | None]:
    """Run a synchronous master of RocketMQ and its slave; both are measured.

    None without a peer.
    """
    if setting.peer is None:
        yield None
        return
    ha, flush = free_port(), FlushDiskType.ASYNC.value
    with (
        fresh_directory(setting.directory) as root,
        setting.peer.broker(root / "master", flush, role="SYNC_MASTER", ha=ha) as (port, pid),
        setting.peer.broker(root / "slave", flush, role="SLAVE", ha=ha) as (_, slave_pid),
    ):
        _await(lambda: _is_stored(port))
        yield Server(str(port), (pid, slave_pid))


def _is_in_sync(client: Client) -> bool:
    leading = client.replication().leading
    return leading is not None and REPLICA in leading.in_sync


def _is_stored(port: int) -> bool:
    """Whether a message to a master is also stored by its slave."""
    try:
        lean.run(exchanges.their_send(BODY_SIZE), port, 1, Limits(exchanges=1))
    except lean.LeanError:
        return False
    return True


def _await(is_so: Callable[[], bool]) -> None:
    """Poll until the copy is connected. Raises SideError."""
    deadline = time.monotonic() + COPIED_WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SideError("the copy does not get in sync")
        time.sleep(0.02)
