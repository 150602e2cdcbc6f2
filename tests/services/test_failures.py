"""Failures outside of the services: disks, writers that die, connections that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Pull, Target
from tests.services.service_processes import Process, await_ready, query, service, writer


def _both(one: Process, other: Process) -> Client:
    return Client(one.url, other.url)


def test_query_goes_on_over_a_writers_death_and_return(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store) as first, query(store) as reader:
        with _both(first, reader) as client:
            client.create_topic("t", queues=1)
            (placed,) = client.produce("t", [NewMessage(body="1")], durability="async").messages
            first.kill()
            assert client.message(placed.offset_msg_id).body == "1"
        with writer(store) as second, _both(second, reader) as client:
            await_ready(client, Target.QUERY)
            assert client.message(placed.offset_msg_id).body == "1"
            answers: list[Pull] = []
            poll = threading.Thread(target=lambda: answers.append(_poll(reader)))
            poll.start()
            client.produce("t", [NewMessage(body="2")])
            poll.join(25)
            assert [each.body for each in answers[0].messages] == ["2"]


def _poll(reader: Process) -> Pull:
    with Client(reader.url, reader.url) as client:
        return client.pull("t", 0, 1, wait_s=30)


def test_query_serves_a_store_at_rest(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        (placed,) = client.produce("t", [NewMessage(body="1", keys=("k",))]).messages
        one.process.terminate()
        assert one.ended()[0] == 0
    with query(store) as reader, Client(reader.url, reader.url) as client:
        assert client.message(placed.offset_msg_id).body == "1"
        assert len(client.messages_by_key("t", "k").messages) == 1


def test_query_before_any_writer_waits_and_says_so(tmp_path: Path) -> None:
    store = tmp_path / "store"
    opened = threading.Event()

    def open_later() -> None:
        with writer(store):
            opened.set()

    thread = threading.Thread(target=open_later)
    thread.start()
    with query(store):  # becomes ready only once a writer has prepared the directory
        pass
    thread.join()
    assert opened.is_set()


def test_full_disk_is_507_and_everything_before_stays(small_disk: Path) -> None:
    store = small_disk / "store"
    settings = {"mapped_file_size_commit_log": 8 << 20, "max_hash_slot_num": 1000}
    with (
        writer(store, max_index_num=5000, **settings) as one,
        query(store) as reader,
        _both(one, reader) as client,
    ):
        client.create_topic("t", queues=1)
        stored = 0
        with pytest.raises(ProblemError) as caught:
            for _ in range(100):
                client.produce("t", [NewMessage(body=b"x" * (1 << 20))])
                stored += 1
        assert (caught.value.status, caught.value.type) == (507, "disk-full")
        assert stored >= 8
        assert len(client.pull("t", 0, stored - 1).messages) == 1


@pytest.fixture(scope="module")
def one_writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    store = tmp_path_factory.mktemp("store") / "store"
    limits = {"receive_timeout_s": 2, "max_header_size": 4096, "max_request_size": 65536}
    with writer(store, **limits) as found:
        yield found


def _send(url: str, data: bytes) -> bytes:
    """Everything that is answered until the service ends the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                received += chunk
        return received


def test_hostile_connections_are_ended_and_the_service_lives(one_writer: Process) -> None:
    url = one_writer.url
    with Client(url) as client:
        client.create_topic("t", queues=1)
    post = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 400 " in _send(url, b"no http at all\r\n\r\n")
    assert b" 431 " in _send(url, b"GET / HTTP/1.1\r\nA: " + b"x" * 300_000)
    assert b" 431 " in _send(url, b"GET /" + b"x" * 300_000)
    assert _send(url, b"") == b""
    assert _send(url, b"GET / HTTP/1.1\r\nHost: a") == b""
    assert b" 408 " in _send(url, post + b"Content-Length: 10\r\n\r\n123")
    endless = post + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: " + b"x" * 1_000_000
    assert b" 200 " not in _send(url, endless)
    smuggled = post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert b" 400 " in _send(url, smuggled)
    with Client(url) as client:
        assert client.health(Target.WRITER).status == "ready"


def test_pipelined_requests_are_all_answered(one_writer: Process) -> None:
    request = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert _send(one_writer.url, request * 200 + last).count(b" 200 OK") == 201


def test_bodies_without_a_length_are_bounded(one_writer: Process) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1000

    with Client(one_writer.url) as client:
        client.create_topic("t", queues=1)
    try:
        response = httpx.post(
            f"{one_writer.url}/v1/topics/t/messages",
            content=chunks(),
            headers={"content-type": "application/json"},
        )
    except httpx.HTTPError:
        return  # the connection was ended while we still sent
    assert response.status_code == 413


@pytest.mark.slow
def test_more_queues_than_the_soft_limit_on_open_files_are_written(tmp_path: Path) -> None:
    limited = (
        "import resource, runpy\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "runpy.run_module('mqstore.writer', run_name='__main__')\n"
    )
    limited_writer = service(Target.WRITER, ["-c", limited], tmp_path / "store")
    with limited_writer as one, Client(one.url) as client:
        client.create_topic("t", queues=100)
        for queue_id in range(100):
            client.produce("t", [NewMessage(queue_id=queue_id)], durability="async")
        assert client.store().queues == 100
