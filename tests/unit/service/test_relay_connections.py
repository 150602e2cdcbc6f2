"""Requests over persistent connections to another service, which answers as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest

from mqstore.service import relay_connections
from mqstore.service.relay_connections import (
    NoReply,
    NotSent,
    RelayConnections,
    RelayedReply,
)

TIMEOUT_S = 60.0
FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Name: Value\r\n\r\nok"
Answer = Callable[[int, bytes], Awaitable[bytes | None]]
"""The reply to a request of the connection with a number; None closes it."""


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode()


def no_tls() -> ssl.SSLContext:
    raise AssertionError("the address has the scheme http")


class Service:
    """Reads requests without a body, and counts connections."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.connections = 0
        self.requests: list[tuple[int, bytes]] = []
        self.closed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Service:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1]
                self.requests.append((number, path))
                reply = await self._answer(number, path)
                if reply is None:
                    break
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            writer.close()


async def fine(_: int, __: bytes) -> bytes:
    return FINE


def run(
    act: Callable[[Service, RelayConnections], Awaitable[None]],
    answer: Answer = fine,
    connections_max: int = relay_connections.CONNECTIONS_KEPT,
) -> None:
    async def live() -> None:
        async with Service(answer) as service:
            connections = RelayConnections(service.url, no_tls, connections_max)
            try:
                await act(service, connections)
            finally:
                await connections.close()

    asyncio.run(asyncio.wait_for(live(), TIMEOUT_S))


def test_a_reply_has_status_headers_and_body() -> None:
    async def act(_: Service, connections: RelayConnections) -> None:
        reply = await connections.send(get("/"), TIMEOUT_S)
        assert reply == RelayedReply(200, [(b"content-length", b"2"), (b"x-name", b"Value")], b"ok")
        assert reply.is_success
        assert (reply.header(b"x-name"), reply.header(b"missing")) == (b"Value", None)

    run(act)


def test_requests_one_after_the_other_share_a_connection() -> None:
    async def act(service: Service, connections: RelayConnections) -> None:
        for _ in range(3):
            await connections.send(get("/"), TIMEOUT_S)
        assert service.connections == 1

    run(act)


def test_a_client_keeps_its_connection_beside_others() -> None:
    async def act(service: Service, connections: RelayConnections) -> None:
        for _ in range(3):
            for client in ("a", "b"):
                await connections.send(get(f"/{client}"), TIMEOUT_S, client)
        assert set(service.requests) == {(0, b"/a"), (1, b"/b")}

    run(act)


def test_above_the_limit_a_client_takes_the_connection_that_is_idle_for_longest() -> None:
    async def act(service: Service, connections: RelayConnections) -> None:
        for client in ("a", "b", "c"):
            await connections.send(get(f"/{client}"), TIMEOUT_S, client)
        assert service.requests == [(0, b"/a"), (1, b"/b"), (0, b"/c")]

    run(act, connections_max=2)


def test_connections_above_those_kept_are_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_connections, "CONNECTIONS_KEPT", 2)

    async def act(service: Service, connections: RelayConnections) -> None:
        clients = range(5)
        await asyncio.gather(*(connections.send(get("/"), TIMEOUT_S, each) for each in clients))
        assert service.connections == 5
        for each in clients:
            await connections.send(get("/"), TIMEOUT_S, each)
        assert service.connections == 5
        assert len(connections._all) == 2

    run(act, connections_max=9)


def test_replies_to_pipelined_requests_come_in_order() -> None:
    async def answer(_: int, path: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(path), path)

    async def act(service: Service, connections: RelayConnections) -> None:
        paths = [f"/{number}" for number in range(9)]
        replies = await asyncio.gather(*(connections.send(get(path), TIMEOUT_S) for path in paths))
        assert [each.body.decode() for each in replies] == paths
        assert service.connections == 2

    run(act, answer, connections_max=2)


def test_a_chunked_reply_is_whole() -> None:
    async def answer(_: int, __: bytes) -> bytes:
        return (
            b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )

    async def act(_: Service, connections: RelayConnections) -> None:
        for __ in range(2):
            reply = await connections.send(get("/"), TIMEOUT_S)
            assert (reply.status, reply.body) == (201, b"abcde")

    run(act, answer)


def test_a_connection_that_the_service_closes_after_a_reply_is_not_used_again() -> None:
    async def answer(_: int, __: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

    async def act(service: Service, connections: RelayConnections) -> None:
        for _ in range(2):
            await connections.send(get("/"), TIMEOUT_S)
        assert service.connections == 2

    run(act, answer)


def test_an_idle_connection_is_not_used_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_connections, "IDLE_MAX_S", -1.0)

    async def act(service: Service, connections: RelayConnections) -> None:
        for _ in range(3):
            await connections.send(get("/"), TIMEOUT_S)
        assert service.connections == 3

    run(act)


def test_where_nothing_listens_nothing_was_sent() -> None:
    async def act(service: Service, _: RelayConnections) -> None:
        url = service.url
        await service.__aexit__()
        with pytest.raises(NotSent, match="111"):
            await RelayConnections(url, no_tls).send(get("/"), TIMEOUT_S)

    run(act)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (None, "closed without a reply"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", None),
        (b"SMTP ready\r\n\r\n", "no HTTP/1.1"),
    ],
)
def test_a_request_without_a_whole_reply_may_have_been_carried_out(
    sent: bytes | None, why: str | None
) -> None:
    async def answer(_: int, path: bytes) -> bytes | None:
        return sent if path == b"/first" else None

    async def act(_: Service, connections: RelayConnections) -> None:
        both = await asyncio.gather(
            connections.send(get("/first"), TIMEOUT_S),
            connections.send(get("/second"), TIMEOUT_S),
            return_exceptions=True,
        )
        assert [type(each) for each in both] == [NoReply, NoReply]
        assert why is None or why in str(both[0])

    run(act, answer, connections_max=1)


def test_a_reply_of_which_too_much_is_held_ends_with_the_holders_error() -> None:
    def hold(size: int) -> None:
        raise NotSent(f"{size} bytes are too many")

    async def act(_: Service, connections: RelayConnections) -> None:
        with pytest.raises(NotSent, match="2 bytes are too many"):
            await connections.send(get("/"), TIMEOUT_S, hold=hold)

    run(act)


def test_a_reply_that_is_too_large_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_connections, "REPLY_SIZE_MAX", 1)

    async def act(_: Service, connections: RelayConnections) -> None:
        with pytest.raises(NoReply, match="more than 1 bytes"):
            await connections.send(get("/"), TIMEOUT_S)

    run(act)


def test_a_reply_that_does_not_come_in_time_ends_the_connection() -> None:
    async def answer(_: int, path: bytes) -> bytes:
        if path == b"/late":
            await asyncio.Event().wait()
        return FINE

    async def act(service: Service, connections: RelayConnections) -> None:
        await connections.send(get("/opens"), TIMEOUT_S)
        with pytest.raises(NoReply, match="in time"):
            await connections.send(get("/late"), 0.5)
        await connections.send(get("/again"), TIMEOUT_S)
        assert service.connections == 2

    run(act, answer)


def test_a_request_that_is_not_wanted_any_more_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def answer(_: int, path: bytes) -> bytes:
        if path == b"/again":
            return FINE
        arrived.set()
        await asyncio.Event().wait()
        return FINE

    async def act(service: Service, connections: RelayConnections) -> None:
        sending = asyncio.ensure_future(connections.send(get("/"), TIMEOUT_S))
        await arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await connections.send(get("/again"), TIMEOUT_S)
        assert service.connections == 2

    run(act, answer)


@pytest.mark.parametrize("url", ["ftp://host", "host:8081", "http://"])
def test_an_address_names_scheme_and_host(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a service"):
        RelayConnections(url, no_tls)
