"""The load of a soak: clients that repeat a mix of operations, as fast as they can or at a rate.

All clients run in one thread, over epoll. At a rate each operation has a time at which it is due,
and its latency counts from that time: while a server stalls, the operations behind wait with it.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import select
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from typing import Final

from tests.bench import senders
from tests.bench.senders import Connection, Reply
from tests.bench.workload import QUEUES, TOPIC, unique_key

CLIENTS: Final = 16
BODY_SIZE: Final = 256
BATCH: Final = 32
PULL: Final = 64
"""Most messages of a pull. Four pulls of a client take more than all clients of its queue store
meanwhile, so readers keep up."""
NUMBERS: Final = 10**9
"""Message numbers of one client."""
_NEXT: Final = re.compile(rb"(?i)x-mqstore-next: *(\d+)")


class Kind(StrEnum):
    """The operations of the mix."""

    SEND = "send"
    BATCH = "batch"
    PULL = "pull"
    TRANSACTION = "transaction"


MIX: Final = (
    *(Kind.SEND, Kind.SEND, Kind.PULL, Kind.SEND, Kind.SEND, Kind.PULL, Kind.BATCH, Kind.SEND),
    *(Kind.SEND, Kind.PULL, Kind.SEND, Kind.SEND, Kind.PULL, Kind.TRANSACTION, Kind.SEND),
)
"""The operations that each client does in turn."""
MESSAGES: Final = {Kind.SEND: 1, Kind.BATCH: BATCH, Kind.PULL: 0, Kind.TRANSACTION: 1}
"""Messages that an operation stores."""

Latencies = dict[Kind, list[float]]
"""Seconds of the operations of each kind."""
Operation = Generator[tuple[bool, bytes], Reply, None]
"""Yields each request, and whether it goes to query; receives its reply."""


class Load:
    """The clients of one soak. A context, whose end closes their connections."""

    def __init__(self, writer_url: str, query_url: str, clients: int = CLIENTS) -> None:
        self._stack = ExitStack()
        self._clients = [_Client(number, writer_url, query_url) for number in range(clients)]
        self._poll = self._stack.enter_context(closing(select.epoll()))
        self._by_number: dict[int, tuple[_Client, Connection]] = {}
        for client in self._clients:
            for connection in client.connections:
                self._stack.enter_context(closing(connection))
                self._by_number[connection.number] = client, connection
                self._poll.register(connection.number, select.EPOLLIN)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self, seconds: float, rate: float | None = None, step_s: float = 1.0
    ) -> Iterator[Latencies]:
        """Run for a time; yields the latencies of each step. Raises SideError.

        ``rate`` is operations a second of all clients; without it each client begins its next
        operation at the end of the one before. All operations have ended at the end.
        """
        interval = 0.0 if rate is None else len(self._clients) / rate
        began = time.perf_counter()
        due = [(began + interval * at / len(self._clients), at) for at in range(len(self._clients))]
        for step in itertools.count(1):
            end = min(began + step * step_s, began + seconds)
            found: Latencies = defaultdict(list)
            while (now := time.perf_counter()) < end:
                self._begin_due(due, now, is_paced=rate is not None)
                self._wait(min(due[0][0], end) if due else end, found, due, interval)
            if end == began + seconds:
                self._drain(found)
                yield found
                return
            yield found

    def _begin_due(self, due: list[tuple[float, int]], now: float, *, is_paced: bool) -> None:
        while due and due[0][0] <= now:
            due_at, at = heapq.heappop(due)
            self._clients[at].begin(due_at if is_paced else now)

    def _wait(
        self, until: float, found: Latencies, due: list[tuple[float, int]], interval: float
    ) -> None:
        """Receive replies until a time; clients whose operation has ended are due again."""
        timeout = max(0.0, until - time.perf_counter())
        for number, _ in self._poll.poll(timeout):
            client, connection = self._by_number[number]
            if client.receive(connection):
                found[client.kind].append(time.perf_counter() - client.due)
                heapq.heappush(due, (client.due + interval, client.number))

    def _drain(self, found: Latencies) -> None:
        ended: list[tuple[float, int]] = []
        while any(client.is_busy for client in self._clients):
            self._wait(time.perf_counter() + 1, found, ended, 0)


class _Client:
    """One client, with a connection to each service."""

    def __init__(self, number: int, writer_url: str, query_url: str) -> None:
        self.number = number
        self.connections = Connection(writer_url), Connection(query_url)
        self.kind = MIX[0]
        self.due = 0.0
        """When the current operation was due."""
        self.is_busy = False
        self._kinds = itertools.cycle(MIX[number % len(MIX) :] + MIX[: number % len(MIX)])
        self._message = number * NUMBERS
        self._queue = number % QUEUES
        self._offset = 0
        self._single = senders.single(BODY_SIZE)
        self._batch = senders.batch(BODY_SIZE, BATCH)
        self._operation: Operation

    def begin(self, due: float) -> None:
        """Begin the next operation of the mix, which was due at ``due``."""
        self.due, self.kind, self.is_busy = due, next(self._kinds), True
        self._operation = self._operation_of(self.kind)
        self._send(*next(self._operation))

    def receive(self, connection: Connection) -> bool:
        """Receive from a connection; returns whether the operation has ended."""
        reply = connection.receive()
        if reply is None:
            return False
        try:
            self._send(*self._operation.send(reply))
        except StopIteration:
            self.is_busy = False
        return not self.is_busy

    def _send(self, to_query: bool, request: bytes) -> None:
        self.connections[to_query].send(request)

    def _operation_of(self, kind: Kind) -> Operation:
        first = self._message
        self._message += MESSAGES[kind]
        match kind:
            case Kind.SEND:
                yield False, self._single(self._queue, first)
            case Kind.BATCH:
                yield False, self._batch(self._queue, first)
            case Kind.TRANSACTION:
                reply = yield False, _begin(first)
                transaction = json.loads(reply.body)["transactionId"]
                yield False, senders.post(f"/v1/transactions/{transaction}:commit", b"")
            case Kind.PULL:
                reply = yield True, _pull(self._queue, self._offset)
                following = _NEXT.search(reply.head)
                assert following is not None, reply.head
                self._offset = int(following[1])


def _begin(number: int) -> bytes:
    message = {
        "body": senders.text_body(BODY_SIZE),
        "keys": [f"order-{number}"],
        "tags": "paid",
        "uniqKey": unique_key(number),
    }
    spec = {"producerGroup": "soak", "topic": TOPIC, "messages": [message]}
    return senders.post("/v1/transactions", json.dumps(spec).encode())


def _pull(queue: int, offset: int) -> bytes:
    path = f"/v1/topics/{TOPIC}/queues/{queue}/messages?max={PULL}&offset={offset}"
    fields = "host: localhost\r\naccept: application/x-rocketmq-records"
    return f"GET {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode()


def stored_messages(found: Sequence[Latencies]) -> int:
    """Messages that the operations of these steps stored."""
    return sum(MESSAGES[kind] * len(each) for step in found for kind, each in step.items())
