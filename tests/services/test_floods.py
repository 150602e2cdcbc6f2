"""A flood of connections, requests or bodies costs bounded memory, and health is answered."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.services.service_processes import Process, Run, query, writer

pytestmark = pytest.mark.slow

MIB = 1 << 20
FLOOD = 3000
RSS_GROWTH_MAX = 96 * MIB
"""Memory that a flood may cost beyond the bytes that may be held."""
ANSWER = 8 * MIB
"""More than the system's buffers take of a connection (tcp_wmem: 4 MiB)."""
BEING_MADE = 2 * 4 * ANSWER
"""By two threads: records, their text, JSON, and one that is on its way to the event loop."""


def _rss(process: Process) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def _address(of: str) -> tuple[str, int]:
    url = httpx.URL(of)
    assert url.port is not None
    return url.host, url.port


@contextlib.contextmanager
def _connections(url: str, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(_address(url), timeout=30))
            for _ in range(count)
        ]


def _assert_healthy(process: Process) -> None:
    with httpx.Client() as http:
        assert http.get(f"{process.url}/healthz/live").status_code == 200
        assert http.get(f"{process.url}/healthz/ready").status_code == 200
        metrics = http.get(f"{process.url}/metrics")
        assert metrics.status_code == 200


def _metric(process: Process, line: str) -> float:
    text = httpx.get(f"{process.url}/metrics").text
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    assert found is not None, line
    return float(found[1])


def _answer(connection: socket.socket) -> tuple[int, dict[str, object], bytes]:
    """Status, problem and head of an answer after which the connection ends."""
    received = b""
    while part := connection.recv(65536):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body), head


GET = b"GET /v1/store HTTP/1.1\r\nhost: localhost\r\n\r\n"


def test_connections_above_the_limit_are_refused_and_health_is_answered(tmp_path: Path) -> None:
    with writer(tmp_path / "store", max_connections=200) as process:
        with _connections(process.url, FLOOD) as connections:
            _assert_healthy(process)
            last = connections[-1]
            last.sendall(GET)
            status, problem, head = _answer(last)
            assert status == 429
            assert problem["type"] == "urn:mqstore:problem:client-over-share"
            assert b"retry-after: 1" in head.lower()
            assert _metric(process, 'mqstore_limit_held{limit="connections"}') == 160
        assert httpx.get(f"{process.url}/v1/store").status_code == 200


def test_flood_of_bodies_holds_no_more_than_is_allowed(tmp_path: Path) -> None:
    pending = 8 * MIB
    settings = {"max_pending_bytes": pending, "max_request_size": MIB}
    with writer(tmp_path / "store", **settings) as process:
        before = _rss(process)
        head = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n"
        part = head + b"content-type: application/json\r\ncontent-length: 900000\r\n\r\n"
        with _connections(process.url, FLOOD) as connections:
            for connection in connections:
                connection.setblocking(False)
                connection.sendall(part)
                with contextlib.suppress(BlockingIOError):
                    connection.send(b" " * 200_000)
            _assert_healthy(process)
        assert _rss(process) - before < pending + RSS_GROWTH_MAX


def test_replies_that_no_client_reads_are_bounded_and_dropped(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store) as storing:
        with httpx.Client(base_url=storing.url) as http:
            http.put("/v1/topics/big", json={"queues": 1}).raise_for_status()
            for _ in range(ANSWER // MIB):
                body = {"messages": [{"body": "x" * MIB}]}
                http.post("/v1/topics/big/messages", json=body).raise_for_status()
        settings = {"max_client_share": 100, "send_timeout_s": 3, "query_threads": 2}
        with query(store, max_pending_bytes=16 * MIB, **settings) as process:
            before = _rss(process)
            line = b"GET /v1/topics/big/queues/0/messages?offset=0&max=32 HTTP/1.1\r\n"
            with _connections(process.url, 200) as connections:
                for connection in connections:
                    connection.sendall(line + b"host: localhost\r\nconnection: close\r\n\r\n")
                _assert_healthy(process)
                for connection in connections:
                    while connection.recv(MIB):
                        pass
            assert _rss(process) - before < 16 * MIB + RSS_GROWTH_MAX + BEING_MADE
            assert _metric(process, 'mqstore_limit_held{limit="bytes"}') == 0
            refused = 'mqstore_limit_refused_total{limit="bytes",problem="overloaded"}'
            assert _metric(process, refused) > 0


@pytest.mark.parametrize("share", [100, 50])
def test_requests_above_the_limit_are_503_and_above_a_share_429(tmp_path: Path, share: int) -> None:
    with writer(tmp_path / "store", max_requests=4, max_client_share=share) as process:
        part = b"PUT /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{"
        with _connections(process.url, 4 * share // 100) as connections:
            for connection in connections:
                connection.sendall(part)
            _assert_healthy(process)
            answer = httpx.get(f"{process.url}/v1/store")
            assert answer.status_code == (503 if share == 100 else 429)
            assert answer.headers["retry-after"] == "1"


def test_no_refusal_is_taken_for_the_answer_to_an_earlier_request(services: Run) -> None:
    with _connections(services.writer_url, 1) as (connection,):
        connection.sendall(GET + b"no HTTP\r\n\r\n")
        assert b"400" not in connection.recv(65536)[:12]


def test_a_flood_of_expressions_is_refused_beyond_a_share_and_health_is_answered(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with writer(store) as storing:
        httpx.put(f"{storing.url}/v1/topics/t", json={"queues": 1}).raise_for_status()
        with query(store) as process, _connections(process.url, 60) as connections:
            for number, connection in enumerate(connections):
                text = "+OR+".join([f"a{number}=1"] * 350)
                path = f"/v1/topics/t/queues/0/messages?sql={text}"
                head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                connection.sendall(head.encode())
            _assert_healthy(process)
            answers = [_answer(connection) for connection in connections]
        assert {status for status, _, _ in answers} == {200, 429}
        assert all(b"retry-after: 1" in head.lower() for status, _, head in answers if status > 200)
