"""A lasting connection against a real socket whose other end follows a script."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop

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


@asynccontextmanager
async def connected(script: Script) -> AsyncIterator[Connection]:
    with serving(script) as url:
        lasting = Connection(url)
        yield lasting
        lasting.close()


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


def run(asks: Coroutine[Any, Any, None]) -> None:
    """On the event loop that services have."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asks)


async def until(it_is: Callable[[], bool]) -> None:
    """Let the event loop turn until then."""
    async with asyncio.timeout(10):
        while not it_is():  # noqa: ASYNC110  # no event tells of a connection's state
            await asyncio.sleep(0)


EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def test_requests_follow_one_another_on_one_connection() -> None:
    seen: list[tuple[int, bytes]] = []

    def script(peer: socket.socket, number: int) -> None:
        while request := received(peer):
            seen.append((number, request))
            for part in (b"HTTP/1.1 201 Cre", b"ated\r\ncontent-length: 3\r\n\r\na", b"bc"):
                peer.sendall(part)

    async def ask(url: str) -> None:
        lasting = Connection(url, token=lambda: "secret")
        assert [await lasting.post("/v1/x", b"{}") for _ in range(2)] == [(201, b"abc")] * 2
        lasting.close()

    with serving(script) as url:
        run(ask(url))
    assert [number for number, _ in seen] == [0, 0]
    request = seen[0][1]
    assert request.startswith(b"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nauthorization: Bearer secret\r\n" in request


def test_an_answer_in_chunks_is_put_together() -> None:
    head = b"HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n"

    async def ask() -> None:
        async with connected(answering(head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")) as lasting:
            assert await lasting.post("/", b"{}") == (409, b"abc")

    run(ask())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 201 Created\r\ncontent-le", b"no HTTP\r\n\r\n"])
def test_an_answer_that_is_none_is_an_error_and_the_next_request_connects(answer: bytes) -> None:
    def script(peer: socket.socket, number: int) -> None:
        received(peer)
        peer.sendall(answer if number == 0 else EMPTY)

    async def ask() -> None:
        async with connected(script) as lasting:
            with pytest.raises(ConnectionError):
                await lasting.post("/", b"{}")
            assert await lasting.post("/", b"{}") == (200, b"")

    run(ask())


def test_a_connection_that_was_closed_while_nobody_asked_is_replaced() -> None:
    async def ask() -> None:
        async with connected(answering(EMPTY)) as lasting:
            for _ in range(3):
                assert await lasting.post("/", b"{}") == (200, b"")
                await until(lambda: lasting._line is not None and lasting._line.is_over)

    run(ask())


def test_one_that_says_close_is_not_used_again() -> None:
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

    async def ask() -> None:
        async with connected(answering(answer)) as lasting:
            assert [await lasting.post("/", b"{}") for _ in range(2)] == [(200, b"")] * 2

    run(ask())


def test_the_answer_to_a_request_that_was_given_up_is_not_taken_for_that_to_the_next() -> None:
    def script(peer: socket.socket, number: int) -> None:
        received(peer)
        if number == 1:
            peer.sendall(EMPTY)
        received(peer)  # until the client is gone

    async def ask() -> None:
        async with connected(script) as lasting:
            asking = asyncio.ensure_future(lasting.post("/", b"{}"))
            await until(lambda: lasting._line is not None)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await lasting.post("/", b"{}") == (200, b"")

    run(ask())


def test_an_answer_that_nobody_waits_for_longer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.05)

    def script(peer: socket.socket, _: int) -> None:
        received(peer)
        received(peer)  # until the client is gone

    async def ask() -> None:
        async with connected(script) as lasting:
            with pytest.raises(ConnectionError, match="too long"):
                await lasting.post("/", b"{}")

    run(ask())
