"""Lean connections to store-writer: ready-made requests, the next one after the answer to the last.

All in one thread, over epoll: what it costs is told apart from the server, and less than that.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from tests.bench.workload import QUEUES, TOPIC, encoded_properties, unique_key

BATCH_MAGIC: Final = 0
RECEIVE_SIZE: Final = 1 << 16
_ITEM: Final = struct.Struct(">iiiii")

MakeRequest = Callable[[int, int], bytes]
"""The request of a connection with the number of its first message."""


def text_body(size: int) -> str:
    """A body that JSON can say; RocketMQ's client sends as many bytes."""
    return "x" * size


def single(size: int) -> MakeRequest:
    """One message as JSON."""
    body = text_body(size)

    def request(connection: int, number: int) -> bytes:
        message = {
            "body": body,
            "keys": [f"order-{number}"],
            "tags": "paid",
            "uniqKey": unique_key(number),
            "queueId": connection % QUEUES,
        }
        return _post("", "application/json", json.dumps({"messages": [message]}).encode())

    return request


def batch(size: int, count: int) -> MakeRequest:
    """A batch as RocketMQ's clients encode it."""
    body = text_body(size).encode()

    def request(connection: int, number: int) -> bytes:
        items = (_item(body, each) for each in encoded_properties(number, count))
        query = f"?queueId={connection % QUEUES}"
        return _post(query, "application/x-rocketmq-batch", b"".join(items))

    return request


def _item(body: bytes, properties: bytes) -> bytes:
    size = _ITEM.size + len(body) + 2 + len(properties)
    head = _ITEM.pack(size, BATCH_MAGIC, zlib.crc32(body) & 0x7FFFFFFF, 0, len(body))
    return b"".join((head, body, struct.pack(">H", len(properties)), properties))


def _post(query: str, media_type: str, content: bytes) -> bytes:
    head = (
        f"POST /v1/topics/{TOPIC}/messages{query} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: {media_type}\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def send_all(url: str, requests: list[list[bytes]]) -> list[float]:
    """Send each connection's requests one after another; seconds of each."""
    host, _, port = urlsplit(url).netloc.rpartition(":")
    connections = [_Connection(host, int(port), each) for each in requests]
    try:
        _run({each.socket.fileno(): each for each in connections})
    finally:
        for each in connections:
            each.socket.close()
    return [second for each in connections for second in each.seconds]


def _run(connections: dict[int, _Connection]) -> None:
    poll = select.epoll()
    for number, connection in connections.items():
        poll.register(number, select.EPOLLIN)
        connection.send_next()
    open_ones = len(connections)
    while open_ones:
        for number, _ in poll.poll():
            if connections[number].receive() and not connections[number].send_next():
                open_ones -= 1
                poll.unregister(number)
    poll.close()


class _Connection:
    def __init__(self, host: str, port: int, requests: list[bytes]) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seconds: list[float] = []
        self._requests: Iterator[bytes] = iter(requests)
        self._answer = b""
        self._began = 0.0

    def send_next(self) -> bool:
        """False when nothing is left to send."""
        request = next(self._requests, None)
        if request is None:
            return False
        self._began = time.perf_counter()
        self.socket.sendall(request)
        return True

    def receive(self) -> bool:
        """Whether the answer is whole now. AssertionError when it is none that is hoped for."""
        self._answer += self.socket.recv(RECEIVE_SIZE)
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not separator or len(body) < _content_length(head):
            return False
        self.seconds.append(time.perf_counter() - self._began)
        if not head.startswith(b"HTTP/1.1 201"):
            raise AssertionError(f"produce: {self._answer[:500]!r}")
        self._answer = b""
        return True


def _content_length(head: bytes) -> int:
    at = head.lower().index(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0])
