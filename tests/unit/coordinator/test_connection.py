"""A lasting connection against a real socket whose other end follows a script."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from mqstore.coordinator import connection
from mqstore.coordinator.connection import Connection

Script = Callable[[socket.socket, int], None]
"""What is done with the n-th connection."""


@contextmanager
def serving(script: Script) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for number in range(10):
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    script(accepted, number)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/base/"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected(script: Script) -> Iterator[Connection]:
    with serving(script) as url, closing(Connection(url)) as lasting:
        yield lasting


def received(peer: socket.socket) -> bytes:
    """One request with a body of two bytes; b"" when the client is gone."""
    data = b""
    while not data.endswith(b"\r\n\r\n{}"):
        part = peer.recv(4096)
        if not part:
            return b""
        data += part
    return data


def answering(*answers: bytes) -> Script:
    def script(peer: socket.socket, _: int) -> None:
        for answer in answers:
            if not received(peer):
                return
            peer.sendall(answer)

    return script


def test_requests_follow_one_another_on_one_connection() -> None:
    seen: list[tuple[int, bytes]] = []

    def script(peer: socket.socket, number: int) -> None:
        while request := received(peer):
            seen.append((number, request))
            for part in (b"HTTP/1.1 201 Cre", b"ated\r\ncontent-length: 3\r\n\r\na", b"bc"):
                peer.sendall(part)

    with serving(script) as url, closing(Connection(url, token=lambda: "secret")) as lasting:
        assert [lasting.post("/v1/x", b"{}") for _ in range(2)] == [(201, b"abc")] * 2
    assert [number for number, _ in seen] == [0, 0]
    request = seen[0][1]
    assert request.startswith(b"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nauthorization: Bearer secret\r\n" in request


def test_an_answer_in_chunks_is_put_together() -> None:
    head = b"HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n"
    with connected(answering(head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")) as lasting:
        assert lasting.post("/", b"{}") == (409, b"abc")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 201 Created\r\ncontent-le", b"no HTTP\r\n\r\n"])
def test_an_answer_that_is_none_is_an_error_and_the_next_request_connects(answer: bytes) -> None:
    def script(peer: socket.socket, number: int) -> None:
        received(peer)
        peer.sendall(answer if number == 0 else b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with connected(script) as lasting:
        with pytest.raises(ConnectionError):
            lasting.post("/", b"{}")
        assert lasting.post("/", b"{}") == (200, b"")


def test_a_connection_that_was_closed_while_nobody_asked_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.0)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    with connected(answering(answer)) as lasting:
        for _ in range(3):
            assert lasting.post("/", b"{}") == (200, b"")
            assert lasting._socket is not None
            select.select([lasting._socket], [], [], 10)  # until the service has closed it


def test_one_that_says_close_is_not_used_again() -> None:
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    with connected(answering(answer)) as lasting:
        assert [lasting.post("/", b"{}") for _ in range(2)] == [(200, b"")] * 2
