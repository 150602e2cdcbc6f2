"""Lean HTTP connections that send ready-made requests, each after the reply to the one before.

All connections run in one thread, over epoll. Their processor time is measured apart from the
server's.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.bench.failures import SideError
from tests.bench.workload import QUEUES, TOPIC, encoded_properties, unique_key

BATCH_MAGIC: Final = 0
RECEIVE_SIZE: Final = 1 << 16
_ITEM: Final = struct.Struct(">iiiii")
_PRODUCE: Final = f"/v1/topics/{TOPIC}/messages"

MakeRequest = Callable[[int, int], bytes]
"""The request of a connection with the number of its first message."""
Script = Generator[bytes, bytes | None, None]
"""The requests of a connection: yields each request, and receives the body of its reply."""


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
        return post(_PRODUCE, json.dumps({"messages": [message]}).encode())

    return request


def batch(size: int, count: int) -> MakeRequest:
    """A batch as RocketMQ's clients encode it."""
    body = text_body(size).encode()

    def request(connection: int, number: int) -> bytes:
        items = (_item(body, each) for each in encoded_properties(number, count))
        path = f"{_PRODUCE}?queueId={connection % QUEUES}"
        return post(path, b"".join(items), "application/x-rocketmq-batch")

    return request


def _item(body: bytes, properties: bytes) -> bytes:
    size = _ITEM.size + len(body) + 2 + len(properties)
    head = _ITEM.pack(size, BATCH_MAGIC, zlib.crc32(body) & 0x7FFFFFFF, 0, len(body))
    return b"".join((head, body, struct.pack(">H", len(properties)), properties))


def post(path: str, content: bytes, media_type: str = "application/json") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: {media_type}\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def send_all(url: str, requests: list[list[bytes]]) -> list[float]:
    """Send each connection's requests one after another; seconds of each."""
    return run_all(url, [_script(each) for each in requests])


def run_all(url: str, scripts: Sequence[Script]) -> list[float]:
    """A connection for each script; seconds of each request, those of a connection together."""
    senders = [_Sender(Connection(url), each) for each in scripts]
    try:
        _run({each.connection.number: each for each in senders})
    finally:
        for each in senders:
            each.connection.close()
    return [second for each in senders for second in each.seconds]


def _script(requests: list[bytes]) -> Script:
    for request in requests:  # noqa: UP028  # a list takes no answers
        yield request


def _run(senders: dict[int, _Sender]) -> None:
    poll = select.epoll()
    for number, sender in senders.items():
        poll.register(number, select.EPOLLIN)
        sender.send_next()
    open_ones = len(senders)
    while open_ones:
        for number, _ in poll.poll():
            if senders[number].receive() and not senders[number].send_next():
                open_ones -= 1
                poll.unregister(number)
    poll.close()


class Reply(NamedTuple):
    """A successful reply."""

    head: bytes
    body: bytes


class Connection:
    """A connection over which one request at a time is sent."""

    def __init__(self, url: str) -> None:
        host, _, port = urlsplit(url).netloc.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = b""

    @property
    def number(self) -> int:
        """The file descriptor."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Send a request whole."""
        self._socket.sendall(request)

    def receive(self) -> Reply | None:
        """Receive a part of the reply; returns the reply once it is whole.

        Raises SideError when it is not a success, or the server has closed the connection.
        """
        part = self._socket.recv(RECEIVE_SIZE)
        if not part:
            raise SideError(f"the server closed the connection after {self._answer[:500]!r}")
        self._answer += part
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not separator or len(body) < _content_length(head):
            return None
        if not head.startswith(b"HTTP/1.1 20"):
            raise SideError(f"refused: {self._answer[:500]!r}")
        self._answer = b""
        return Reply(head, body)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class _Sender:
    def __init__(self, connection: Connection, script: Script) -> None:
        self.connection = connection
        self.seconds: list[float] = []
        self._script = script
        self._body: bytes | None = None
        self._began = 0.0

    def send_next(self) -> bool:
        """False when nothing is left to send."""
        try:
            request = self._script.send(self._body)
        except StopIteration:
            return False
        self._began = time.perf_counter()
        self.connection.send(request)
        return True

    def receive(self) -> bool:
        """Whether the reply is whole now. Raises SideError."""
        reply = self.connection.receive()
        if reply is None:
            return False
        self.seconds.append(time.perf_counter() - self._began)
        self._body = reply.body
        return True


def _content_length(head: bytes) -> int:
    at = head.lower().index(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0])
