"""Sends over loopback: store-writer over HTTP, and a real broker with RocketMQ's own client.

Each connection sends the next message, or batch, once the last was acknowledged. The cost of the
server and that of who sends are the processor time of their processes, for each message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.storage.config import FlushDiskType
from tests.bench import latencies, senders, servers
from tests.bench.harness import Bench, Figures, Setting
from tests.bench.servers import Server
from tests.bench.workload import BODY_SIZE

BATCH: Final = 100
COSTS: Final = {"server": "server's cost", "client": "client's cost"}
RECORDS_PER_SEND: Final = 20
"""One send costs about as much as this many puts in a process."""
WARM_SHARE: Final = 10
"""The broker's code is compiled by one message in so many before anything is measured."""


@dataclass(frozen=True)
class Shape:
    name: str
    connections: int
    batch: int = 1
    flush: FlushDiskType = FlushDiskType.ASYNC

    def sends(self, records: int) -> int:
        """Sends of each connection."""
        messages = records // RECORDS_PER_SEND * (BATCH // 10 if self.batch > 1 else 1)
        if self.flush is FlushDiskType.SYNC:
            messages //= 4
        return max(10, messages // self.connections // self.batch)


SHAPES: Final = (
    Shape("1 connection", 1),
    Shape("8 connections", 8),
    Shape("32 connections", 32),
    Shape(f"batches of {BATCH}, 8 connections", 8, BATCH),
    Shape("sync flush, 32 connections", 32, flush=FlushDiskType.SYNC),
)


@dataclass(slots=True)
class _Numbers:
    """Numbers of messages: none is taken twice, since a message under a known key is not stored."""

    taken: int = 0

    def take(self, count: int) -> int:
        """Return the first of ``count`` new numbers."""
        first = self.taken
        self.taken += count
        return first


def benches(setting: Setting) -> Iterator[Bench]:
    for flush in FlushDiskType:
        numbers = _Numbers()
        with servers.writer(setting, flush) as writer, servers.broker(setting, flush) as broker:
            processes = {"ours": writer.process_ids}
            if broker is not None:
                processes["peer"] = broker.process_ids
                warm = Shape("warm", 8)
                _peer(setting, broker, warm, setting.records // WARM_SHARE // warm.connections)
            for shape in SHAPES:
                if shape.flush is flush:
                    sends = shape.sends(setting.records)
                    ours = partial(_ours, writer, numbers, shape, sends)
                    peer = None if broker is None else partial(_peer, setting, broker, shape, sends)
                    name = f"sends 1 KiB over loopback, {shape.name}"
                    metrics = servers.metrics(name, "message", COSTS, BODY_SIZE)
                    yield Bench(metrics, ours, peer, processes=processes)


def _ours(writer: Server, numbers: _Numbers, shape: Shape, sends: int) -> Figures:
    make = senders.batch(BODY_SIZE, shape.batch) if shape.batch > 1 else senders.single(BODY_SIZE)
    first = numbers.take(shape.connections * sends * shape.batch)
    requests = [
        [make(number, first + (number * sends + each) * shape.batch) for each in range(sends)]
        for number in range(shape.connections)
    ]
    cpu, own, began = writer.cpu_s(), time.process_time(), time.perf_counter()
    seconds = senders.send_all(writer.address, requests)
    taken, messages = time.perf_counter() - began, len(seconds) * shape.batch
    return {
        "rate": messages / taken,
        "server": (writer.cpu_s() - cpu) / messages * 1e6,
        "client": (time.process_time() - own) / messages * 1e6,
        **latencies.figures(seconds),
    }


def _peer(setting: Setting, broker: Server, shape: Shape, sends: int) -> Figures:
    assert setting.peer is not None
    cpu = broker.cpu_s()
    figures = setting.peer.request(
        "send",
        port=broker.address,
        connections=shape.connections,
        sends=sends,
        batch=shape.batch,
        body=BODY_SIZE,
    )
    messages = shape.connections * sends * shape.batch
    return {**figures, "server": (broker.cpu_s() - cpu) / messages * 1e6}
