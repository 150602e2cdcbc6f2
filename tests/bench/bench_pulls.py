"""Pulls over loopback: query over HTTP, and a real broker with RocketMQ's own client.

Each reader pulls a queue from its first message to its end, the next pull once the last was
answered. Answers are the records as they stand in the log; neither side decodes them. Of the
filtered pulls, one message in a hundred has the requested tag.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.storage.config import FlushDiskType
from tests.bench import latencies, readers, servers
from tests.bench.harness import Bench, Figures, Setting
from tests.bench.servers import Server
from tests.bench.stores import FILL_BATCH, Filled, filled_store
from tests.bench.workload import BODY_SIZE, QUEUES, RARE_TAG
from tests.services.service_processes import query

SEGMENT: Final = 64 << 20
READ_SHARE: Final = 4
"""The part of the log's size that is read: so much stays in the page cache for both sides."""
PULL: Final = 32
"""RocketMQ's maxTransferCountOnMessageInMemory."""


@dataclass(frozen=True)
class Shape:
    name: str
    readers: int
    tag: str | None = None


SHAPES: Final = (
    Shape("1 reader", 1),
    Shape("8 readers", 8),
    Shape("filtered by tag, 1 in 100, 1 reader", 1, RARE_TAG),
)


def benches(setting: Setting) -> Iterator[Bench]:
    size = (setting.log_mib << 20) // READ_SHARE
    with (
        filled_store(setting.directory, SEGMENT, size) as filled,
        serve_query(filled) as ours,
        serve_broker(setting, filled) as broker,
    ):
        processes = {"ours": ours.process_ids}
        if broker is not None:
            processes["peer"] = broker.process_ids
        for shape in SHAPES:
            peer = None if broker is None else partial(_peer, setting, broker, shape, filled)
            name = f"pulls of {PULL} over loopback, {shape.name}"
            body_size = BODY_SIZE if shape.tag is None else None  # filtered: of messages looked at
            metrics = servers.metrics(name, "message", {"server": "server's cost"}, body_size)
            yield Bench(metrics, partial(_ours, ours, shape, filled), peer, processes=processes)


@contextmanager
def serve_query(filled: Filled) -> Iterator[Server]:
    with query(filled.ours) as process:
        yield Server(process.url, (process.process.pid,))


@contextmanager
def serve_broker(setting: Setting, filled: Filled) -> Iterator[Server | None]:
    if setting.peer is None:
        yield None
        return
    flush = FlushDiskType.ASYNC.value
    with setting.peer.broker(filled.peers, flush, segment=SEGMENT) as (port, process_id):
        yield Server(str(port), (process_id,))


def _queues(shape: Shape) -> list[int]:
    return [number % QUEUES for number in range(shape.readers)]


def end_of_queues(filled: Filled) -> int:
    """Every queue has so many messages."""
    return filled.records // (QUEUES * FILL_BATCH) * FILL_BATCH


def _ours(server: Server, shape: Shape, filled: Filled) -> Figures:
    parameters = f"max={PULL}" if shape.tag is None else f"max={PULL}&tags={shape.tag}"
    end = end_of_queues(filled)
    cpu, began = server.cpu_s(), time.perf_counter()
    found, seconds = readers.pull_all(server.address, _queues(shape), end, parameters)
    taken, looked_at = time.perf_counter() - began, shape.readers * end
    assert found >= looked_at // 200, f"{found} messages of {looked_at}"
    return {
        "rate": looked_at / taken,
        "server": (server.cpu_s() - cpu) / looked_at * 1e6,
        **latencies.figures(seconds),
    }


def _peer(setting: Setting, broker: Server, shape: Shape, filled: Filled) -> Figures:
    assert setting.peer is not None
    end = end_of_queues(filled)
    cpu = broker.cpu_s()
    figures = setting.peer.request(
        "pull",
        port=broker.address,
        readers=shape.readers,
        end=end,
        max=PULL,
        subscription=shape.tag or "*",
    )
    return {**figures, "server": (broker.cpu_s() - cpu) / (shape.readers * end) * 1e6}
