"""Lean connections to query: each pulls a queue to its end, on from where the last answer says.

All in one thread, over epoll; answers are records as they stand in the log, and are not decoded.
"""

from __future__ import annotations

import re
import select
import socket
import time
from typing import Final
from urllib.parse import urlsplit

from tests.bench.failures import SideError
from tests.bench.workload import TOPIC

RECEIVE_SIZE: Final = 1 << 18
_LENGTH: Final = re.compile(rb"(?i)content-length: *(\d+)")
_NEXT: Final = re.compile(rb"(?i)x-mqstore-next: *(\d+)")
_COUNT: Final = re.compile(rb"(?i)x-mqstore-messages: *(\d+)")


def pull_all(url: str, queues: list[int], end: int, query: str) -> tuple[int, list[float]]:
    """Pull each of these queues up to the offset ``end``: messages, and seconds of each pull."""
    host, _, port = urlsplit(url).netloc.rpartition(":")
    readers = [_Reader(host, int(port), queue, end, query) for queue in queues]
    poll = select.epoll()
    by_number = {each.socket.fileno(): each for each in readers}
    for number, reader in by_number.items():
        poll.register(number, select.EPOLLIN)
        reader.request()
    open_ones = len(readers)
    while open_ones:
        for number, _ in poll.poll():
            if by_number[number].receive() and not by_number[number].request():
                open_ones -= 1
                poll.unregister(number)
    poll.close()
    for each in readers:
        each.socket.close()
    return sum(each.messages for each in readers), [s for each in readers for s in each.seconds]


class _Reader:
    def __init__(self, host: str, port: int, queue: int, end: int, query: str) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.messages = 0
        self.seconds: list[float] = []
        path = f"/v1/topics/{TOPIC}/queues/{queue}/messages?{query}&offset="
        self._line = f"GET {path}".encode()
        self._fields = (
            b" HTTP/1.1\r\nhost: localhost\r\naccept: application/x-rocketmq-records\r\n\r\n"
        )
        self._offset, self._end = 0, end
        self._buffer = bytearray(RECEIVE_SIZE)
        self._size = 0
        self._left = 0
        self._began = 0.0

    def request(self) -> bool:
        """False at the queue's end."""
        if self._offset >= self._end:
            return False
        self._size = 0
        self._began = time.perf_counter()
        self.socket.sendall(b"%b%d%b" % (self._line, self._offset, self._fields))
        return True

    def receive(self) -> bool:
        """Whether the answer is whole now. SideError when it is not a success."""
        if self._size:
            self._left -= self.socket.recv_into(self._buffer)
        else:
            self._size = self.socket.recv_into(self._buffer)
            self._begin()
        if self._left:
            return False
        self.seconds.append(time.perf_counter() - self._began)
        return True

    def _begin(self) -> None:
        data = bytes(self._buffer[: min(self._size, 2048)])
        body = data.index(b"\r\n\r\n") + 4
        if not data.startswith(b"HTTP/1.1 200"):
            raise SideError(f"pull: {data!r}")
        self._left = body + _number(_LENGTH, data) - self._size
        self._offset = _number(_NEXT, data)
        self.messages += _number(_COUNT, data)


def _number(pattern: re.Pattern[bytes], head: bytes) -> int:
    found = pattern.search(head)
    assert found is not None, head
    return int(found[1])
