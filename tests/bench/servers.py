"""Servers under measurement, on new stores: where they answer, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mqstore.storage.config import FlushDiskType
from tests.bench import latencies
from tests.bench.harness import Metric, Setting
from tests.bench.stores import fresh_directory
from tests.bench.workload import QUEUES, TOPIC
from tests.services.service_processes import Run, running


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
