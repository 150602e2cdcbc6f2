"""Thousands of long polls wait on connections of their own; an arrival wakes those it is for."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import select
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage
from mqstore.storage.system.open_files import raise_open_files_limit
from tests.services.service_processes import Process, query, writer

POLLS = 3_000
OTHERS = 100
"""Messages of another queue, and as many whose tag does not match."""
AT_ONCE = 1_000
"""Connections that are opened before the first of them is looked for among those that wait. Looking
takes time, and none of them waits for more than 30 s."""
OPEN_FILES = 20_000
"""Each process has one end of a connection; a service takes three quarters of its limit."""
RSS_A_POLL = 40 << 10
"""Bytes of memory that a poll may cost, its connection included."""


@pytest.fixture(autouse=True)
def _open_files() -> None:
    """Soft limits are low; where the hard one is, too, thousands cannot be had."""
    raise_open_files_limit()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES // 2:
        pytest.skip(f"only {hard} open files are allowed; {OPEN_FILES // 2} are needed")


class _Polls:
    """Connections that each wait for one answer."""

    def __init__(self, process: Process, topic: str) -> None:
        url = httpx.URL(process.url)
        assert url.port is not None
        self._address = (url.host, url.port)
        self._process = process
        self._topic = topic
        self._stack = contextlib.ExitStack()
        self.waiting = 0

    def open(self, count: int, queue: int, more: str = "") -> list[socket.socket]:
        """Open further polls, all of which wait when this returns."""
        path = f"/v1/topics/{self._topic}/queues/{queue}/messages?wait=30{more}"
        request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        opened: list[socket.socket] = []
        while len(opened) < count:
            for _ in range(min(AT_ONCE, count - len(opened))):
                opened.append(self._stack.enter_context(socket.create_connection(self._address)))
                opened[-1].sendall(request)
            _await_open(self._process, self.waiting + len(opened), opened)
        self.waiting += count
        return opened

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def _polls(process: Process, topic: str) -> Iterator[_Polls]:
    polls = _Polls(process, topic)
    try:
        yield polls
    finally:
        polls.close()


def _await_open(process: Process, count: int, opened: Sequence[socket.socket] = ()) -> None:
    """Wait until the metrics count so many open polls; none of ``opened`` is answered before."""
    with httpx.Client() as http:
        while _open_polls(http, process) != count:
            assert _silent(opened), "a poll was refused or answered before all of them wait"


def _open_polls(http: httpx.Client, process: Process) -> int:
    text = http.get(f"{process.url}/metrics").text
    found = re.search(r"^mqstore_open_polls (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _answers(connections: Sequence[socket.socket]) -> list[tuple[bytes, bytes]]:
    """Status line and body of the answer on each connection, in whatever order they come."""
    return [(head.partition(b"\r\n")[0], body) for head, body in map(_answer, connections)]


def _answer(connection: socket.socket) -> tuple[bytes, bytes]:
    connection.settimeout(30)
    received = b""
    while part := connection.recv(1 << 16):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def _silent(connections: Sequence[socket.socket]) -> bool:
    """Assert that no connection received anything."""
    poll = select.poll()
    for each in connections:
        poll.register(each, select.POLLIN)
    return not poll.poll(0)


def _bodies(answers: list[tuple[bytes, bytes]]) -> set[tuple[bytes, str]]:
    return {
        (status, each["body"])
        for status, body in answers
        for each in json.loads(body)["messages"] or [{"body": None}]
    }


def _rss(process: Process) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.slow
def test_one_arrival_wakes_all_polls_of_its_queue_and_no_others(tmp_path: Path) -> None:
    most = POLLS + 2 * OTHERS
    with (
        writer(tmp_path / "store") as put,
        query(tmp_path / "store", max_open_polls=most, max_client_share=100) as find,
        Client(put.url, find.url) as client,
        _polls(find, "t") as polls,
    ):
        client.create_topic("t", queues=2)
        client.produce("t", [NewMessage(tags="early", queue_id=0)])
        before = _rss(find)
        of_another_queue = polls.open(OTHERS, 1)
        unmatched = polls.open(OTHERS, 0, "&offset=1&tags=never")
        here = polls.open(POLLS, 0, "&offset=1")
        assert _rss(find) - before < most * RSS_A_POLL

        refused = httpx.get(f"{find.url}/v1/topics/t/queues/0/messages?offset=1&wait=30")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["type"] == "urn:mqstore:problem:overloaded"

        client.produce("t", [NewMessage(body="x", tags="mine", queue_id=0)])
        assert _bodies(_answers(here)) == {(b"HTTP/1.1 200 OK", "x")}
        _await_open(find, 2 * OTHERS)
        assert _silent(of_another_queue + unmatched)

        client.produce("t", [NewMessage(body="y", queue_id=1)])
        assert _bodies(_answers(of_another_queue)) == {(b"HTTP/1.1 200 OK", "y")}
        _await_open(find, OTHERS)
        assert _silent(unmatched)


@pytest.mark.slow
def test_polls_above_a_clients_share_are_429_and_health_is_answered(tmp_path: Path) -> None:
    with (
        writer(tmp_path / "store") as put,
        query(tmp_path / "store", max_requests=20, max_client_share=50) as find,
        Client(put.url, find.url) as client,
        _polls(find, "t") as polls,
    ):
        client.create_topic("t", queues=1)
        waiting = polls.open(10, 0)
        refused = httpx.get(f"{find.url}/v1/topics/t/queues/0/messages")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["type"] == "urn:mqstore:problem:client-over-share"
        assert httpx.get(f"{find.url}/healthz/ready").status_code == 200
        client.produce("t", [NewMessage(body="x")])
        assert _bodies(_answers(waiting)) == {(b"HTTP/1.1 200 OK", "x")}
        assert httpx.get(f"{find.url}/v1/topics/t/queues/0/messages").status_code == 200


@pytest.mark.slow
def test_poll_whose_client_went_away_waits_no_more(tmp_path: Path) -> None:
    """The poll ends with status 499 at the disconnection, not at its timeout."""
    with (
        writer(tmp_path / "store") as put,
        query(tmp_path / "store") as find,
        Client(put.url, find.url) as client,
    ):
        client.create_topic("t", queues=1)
        with _polls(find, "t") as polls:
            polls.open(OTHERS, 0)
        _await_open(find, 0)
        text = httpx.get(f"{find.url}/metrics").text
        ended = re.findall(r'requests_total\{.*queue.*status="(\d+)"\} (\S+)', text)
        assert ended == [("499", f"{OTHERS}.0")]
