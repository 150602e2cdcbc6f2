"""Transactions over loopback: store-writer over HTTP, and a real broker with RocketMQ's own
producer, whose local transaction commits at once.

Each client begins a transaction of one message, then commits it, then begins the next. Our commit
is answered once the message can be read. RocketMQ's producer sends its decision one way and
continues, so its round ends when all messages are in their queues; its latencies end when it
continues.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.storage.config import FlushDiskType
from tests.bench import latencies, senders, servers
from tests.bench.harness import Bench, Figures, Setting
from tests.bench.senders import Script
from tests.bench.servers import Server
from tests.bench.workload import BODY_SIZE, TOPIC
from tests.free_ports import free_port

RECORDS_PER_TRANSACTION: Final = 50
"""One transaction costs about as much as this many puts in a process."""
SYNC_SHARE: Final = 4
WARM_SHARE: Final = 25
"""The broker's code is compiled by one transaction in so many records before any is measured."""
CLIENTS: Final = (1, 8, 32)
KEYED_CLIENTS: Final = 8
COSTS: Final = {"server": "servers' cost", "client": "clients' cost"}
_TRANSACTIONS: Final = "/v1/transactions"


@dataclass(frozen=True)
class Shape:
    clients: int
    flush: FlushDiskType
    has_keys: bool = False
    """Whether producers give unique keys of their own, so that a begin may be sent again."""

    @property
    def name(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        flush = ", sync flush" if self.flush is FlushDiskType.SYNC else ""
        keys = ", own uniqKeys" if self.has_keys else ""
        return f"transactions 1 KiB over loopback, {clients}{keys}{flush}"

    def transactions(self, records: int) -> int:
        """Transactions of each client."""
        count = records // RECORDS_PER_TRANSACTION
        if self.flush is FlushDiskType.SYNC:
            count //= SYNC_SHARE
        return max(10, count // self.clients)


def benches(setting: Setting) -> Iterator[Bench]:
    for flush in FlushDiskType:
        with (
            servers.writer(setting, flush) as services,
            servers.broker(setting, flush, names=free_port()) as broker,
        ):
            processes = {"ours": services.process_ids}
            if broker is not None:
                processes["peer"] = broker.process_ids
                warm = Shape(8, flush)
                _peer(setting, broker, warm, max(10, setting.records // WARM_SHARE // warm.clients))
            for shape in _shapes(flush):
                count = shape.transactions(setting.records)
                ours = partial(_ours, services, shape, count)
                peer = None if broker is None else partial(_peer, setting, broker, shape, count)
                metrics = servers.metrics(shape.name, "transaction", COSTS, BODY_SIZE)
                yield Bench(metrics, ours, peer, processes=processes)


def _shapes(flush: FlushDiskType) -> list[Shape]:
    plain = [Shape(clients, flush) for clients in CLIENTS]
    return [*plain, Shape(KEYED_CLIENTS, flush, has_keys=True)]


def _script(begins: list[bytes]) -> Script:
    for begin in begins:
        answer = yield begin
        assert answer is not None
        transaction = json.loads(answer)["transactionId"]
        yield senders.post(f"{_TRANSACTIONS}/{transaction}:commit", b"")


def _begin(number: int, key: str | None) -> bytes:
    message = {"body": senders.text_body(BODY_SIZE), "keys": [f"order-{number}"], "tags": "paid"}
    if key is not None:
        message["uniqKey"] = key
    spec = {"producerGroup": "bench", "topic": TOPIC, "messages": [message]}
    return senders.post(_TRANSACTIONS, json.dumps(spec).encode())


def _ours(services: Server, shape: Shape, count: int) -> Figures:
    scripts = [
        _script(
            [
                _begin(number, uuid.uuid4().hex if shape.has_keys else None)
                for number in range(count)
            ]
        )
        for _ in range(shape.clients)
    ]
    cpu, own, began = services.cpu_s(), time.process_time(), time.perf_counter()
    seconds = senders.run_all(services.address, scripts)
    taken, total = time.perf_counter() - began, count * shape.clients
    both = [begin + commit for begin, commit in zip(seconds[::2], seconds[1::2], strict=True)]
    return {
        "rate": total / taken,
        "server": (services.cpu_s() - cpu) / total * 1e6,
        "client": (time.process_time() - own) / total * 1e6,
        **latencies.figures(both),
    }


def _peer(setting: Setting, broker: Server, shape: Shape, count: int) -> Figures:
    """One round of the peer; its cost leaves out the connecting of its producers."""
    assert setting.peer is not None
    return setting.peer.request(
        "transactions",
        names=broker.address,
        broker=broker.process_ids[0],
        clients=shape.clients,
        transactions=count,
        body=BODY_SIZE,
    )
