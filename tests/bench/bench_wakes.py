"""Until a pull that waits at a queue's end returns with the message that was put: from its sending,
and from its acknowledgement (a microsecond where the pull returned first, as it often does).

Over HTTP on loopback, and a real broker with RocketMQ's own client (its PullRequestHoldService).
No other request is under way, and each pull has waited for PAUSE_S.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from tests.bench import latencies, senders, servers
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.servers import Server
from tests.bench.workload import BODY_SIZE, TOPIC
from tests.services.service_processes import Run

RECORDS_PER_MESSAGE: Final = 1_000
WARM: Final = 20
PAUSE_S: Final = 0.02
"""A pull waits by then, on both sides."""
WAIT_S: Final = 30
LEAST_S: Final = 1e-6
KEYS: Final = ("p50", "p99")
_LENGTH: Final = re.compile(rb"(?i)content-length: *(\d+)")


def benches(setting: Setting) -> Iterator[Bench]:
    count = max(50, setting.records // RECORDS_PER_MESSAGE)
    metrics = [
        Metric(f"{since} {key}", f"waiting pull returns, {text}, {key}", "ms", False)
        for since, text in (("sent", "after the send"), ("acknowledged", "after ack"))
        for key in KEYS
    ]
    with servers.services(setting) as run, servers.broker(setting) as broker:
        peer = None if broker is None else partial(_peer, setting, broker, count)
        yield Bench(metrics, partial(_ours, run, count), peer)


def _peer(setting: Setting, broker: Server, count: int) -> Figures:
    assert setting.peer is not None
    pause_ms = round(PAUSE_S * 1000)
    more = {"count": count, "warm": WARM, "pauseMs": pause_ms, "max": 32, "subscription": "*"}
    return setting.peer.request("wake", port=int(broker.address), **more)


def _ours(run: Run, count: int) -> Figures:
    with run.client() as client:
        offset = client.pull(TOPIC, 0).max_offset
    writer, query = _Connection(run.writer_url), _Connection(run.query_url)
    produce = senders.single(BODY_SIZE)
    sent, acknowledged = [], []
    for number in range(WARM + count):
        query.request(_pull(offset + number))
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        writer.request(produce(0, offset + number))
        acked, woken = _answered(writer, query)
        sent.append(woken - began)
        acknowledged.append(max(LEAST_S, woken - acked))
    writer.socket.close()
    query.socket.close()
    times = {"sent": sent[WARM:], "acknowledged": acknowledged[WARM:]}
    return {
        f"{since} {key}": value
        for since, seconds in times.items()
        for key, value in latencies.figures(seconds).items()
    }


def _pull(offset: int) -> bytes:
    path = f"/v1/topics/{TOPIC}/queues/0/messages?offset={offset}&max=32&wait={WAIT_S}"
    accept = "accept: application/x-rocketmq-records"
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{accept}\r\n\r\n".encode()


def _answered(*connections: _Connection) -> list[float]:
    """When the whole answer of each was there."""
    ended: dict[int, float] = {}
    by_number = {each.socket.fileno(): each for each in connections}
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while len(ended) < len(connections):
            for number, _ in poll.poll():
                if by_number[number].receive():
                    ended[number] = time.perf_counter()
                    poll.unregister(number)
    return [ended[number] for number in by_number]


class _Connection:
    def __init__(self, url: str) -> None:
        host, _, port = urlsplit(url).netloc.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = b""

    def request(self, request: bytes) -> None:
        self._answer = b""
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Whether the answer is whole. SideError when it is not a success."""
        self._answer += self.socket.recv(1 << 16)
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not separator:
            return False
        length = _LENGTH.search(head)
        if not head.startswith(b"HTTP/1.1 20"):
            raise SideError(f"pull: {head!r}")
        assert length is not None
        assert int(length[1]) > 0, "the pull returned without a message"
        return len(body) >= int(length[1])
