"""The remoting protocol: bytes of commands, and a server and a client over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import remoting
from mqstore.service.remoting import (
    Command,
    CommandInvalid,
    CommandRefused,
    Connection,
    Handler,
    PeerUnreachable,
    RemotingClient,
    RemotingServer,
    Response,
)
from mqstore.service.sockets import bind

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COMMANDS = st.builds(
    Command,
    code=INTS,
    ext_fields=st.dictionaries(TEXTS, TEXTS, max_size=5),
    body=st.binary(max_size=200),
    remark=st.none() | TEXTS,
    opaque=INTS,
    flag=st.integers(0, 3),
    language=st.sampled_from(["JAVA", "PYTHON", "GO"]),
    version=INTS,
)
ECHO = 10
REFUSES = 11
FAILS = 12
SLOW = 13


async def _echo(request: Command, _: Connection) -> Response:
    return Response(body=request.body, ext_fields=request.ext_fields)


async def _refuse(request: Command, _: Connection) -> Response:
    raise CommandRefused(17, "no such topic")


async def _fail(request: Command, _: Connection) -> Response:
    raise RuntimeError("a defect")


async def _never(request: Command, _: Connection) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


HANDLERS: dict[int, Handler] = {ECHO: _echo, REFUSES: _refuse, FAILS: _fail, SLOW: _never}


def _served(
    scenario: Callable[[str, int], Awaitable[None]],
    *,
    allows: Callable[[str], bool] = lambda _: True,
    connections_max: int = 16,
    idle_timeout_s: float = 60,
) -> None:
    async def run() -> None:
        listener = bind("127.0.0.1", 0)
        host, port = listener.getsockname()
        server = RemotingServer(
            HANDLERS, allows=allows, connections_max=connections_max, idle_timeout_s=idle_timeout_s
        )
        await server.start(listener)
        try:
            await scenario(host, port)
        finally:
            await server.close()

    asyncio.run(run())


@given(COMMANDS)
def test_a_command_is_read_as_it_was_written(command: Command) -> None:
    frame = remoting.encode(command)
    assert struct.unpack_from(">I", frame)[0] == len(frame) - 4
    assert remoting.decode(frame[4:]) == command


def test_a_header_of_a_real_broker_is_read() -> None:
    header = (
        b'{"code":21,"extFields":{"a":"b"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    command = remoting.decode(struct.pack(">I", len(header)) + header + b"body")
    assert command == Command(
        code=21, ext_fields={"a": "b"}, body=b"body", opaque=7, language="JAVA", version=399
    )


@given(st.binary(max_size=64))
def test_bytes_that_are_no_command_are_an_error(data: bytes) -> None:
    with pytest.raises(CommandInvalid):
        remoting.decode(data)


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b'{"code":"x"}', b'{"code":2147483648}', b"\xff", b'{"code":1']
)
def test_a_header_of_another_form_is_an_error(header: bytes) -> None:
    with pytest.raises(CommandInvalid):
        remoting.decode(struct.pack(">I", len(header)) + header)


def test_a_header_in_another_serialization_is_an_error() -> None:
    with pytest.raises(CommandInvalid, match="serialization 1"):
        remoting.decode(struct.pack(">I", 1 << 24 | 2) + b"{}")


def test_a_command_beyond_the_size_is_an_error() -> None:
    with pytest.raises(CommandInvalid, match="at most"):
        remoting.encode(Command(code=1, body=bytes(remoting.FRAME_SIZE_MAX)))


def test_responses_go_to_their_requests() -> None:
    async def scenario(host: str, port: int) -> None:
        client = RemotingClient(host, port)
        bodies = [str(number).encode() for number in range(20)]
        found = await asyncio.gather(*(client.request(ECHO, {"x": "y"}, body) for body in bodies))
        assert [each.body for each in found] == bodies
        assert all(each.ext_fields == {"x": "y"} and each.is_response for each in found)
        client.close()

    _served(scenario)


@pytest.mark.parametrize(
    ("code", "refusal"),
    [(REFUSES, 17), (FAILS, remoting.SYSTEM_ERROR), (99, remoting.REQUEST_CODE_NOT_SUPPORTED)],
)
def test_a_refused_request_names_the_code_and_the_connection_goes_on(
    code: int, refusal: int
) -> None:
    async def scenario(host: str, port: int) -> None:
        client = RemotingClient(host, port)
        with pytest.raises(CommandRefused) as refused:
            await client.request(code)
        assert refused.value.code == refusal
        assert refused.value.remark
        assert (await client.request(ECHO, body=b"on")).body == b"on"
        client.close()

    _served(scenario)


def test_a_oneway_request_gets_no_response() -> None:
    async def scenario(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(remoting.encode(Command(code=ECHO, flag=remoting.ONEWAY_FLAG, opaque=1)))
        writer.write(remoting.encode(Command(code=ECHO, opaque=2)))
        command = await remoting.read_command(reader)
        assert command is not None
        assert command.opaque == 2
        writer.close()

    _served(scenario)


def test_a_late_response_fails_its_request_only() -> None:
    async def scenario(host: str, port: int) -> None:
        client = RemotingClient(host, port)
        with pytest.raises(PeerUnreachable, match="did not respond"):
            await client.request(SLOW, timeout_s=0.01)
        assert (await client.request(ECHO, body=b"on")).body == b"on"
        client.close()

    _served(scenario)


def test_a_peer_without_a_listener_is_unreachable() -> None:
    async def scenario() -> None:
        listener = bind("127.0.0.1", 0)
        host, port = listener.getsockname()
        listener.close()
        with pytest.raises(PeerUnreachable):
            await RemotingClient(host, port).request(ECHO)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "data",
    [struct.pack(">I", remoting.FRAME_SIZE_MAX), struct.pack(">II", 6, 2) + b"[]", b"GET / HTTP"],
)
def test_bytes_that_are_no_command_end_the_connection(data: bytes) -> None:
    async def scenario(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        assert await reader.read() == b""
        writer.close()

    _served(scenario)


@pytest.mark.parametrize(
    ("options", "event"),
    [
        ({}, "a remoting connection is closed"),
        ({"allows": lambda _: False}, "a remoting peer is not allowed"),
        ({"connections_max": 0}, "too many remoting connections"),
    ],
)
def test_hostile_connections_are_counted_and_not_logged_one_by_one(
    options: dict[str, Any], event: str
) -> None:
    async def run() -> None:
        listener = bind("127.0.0.1", 0)
        server = RemotingServer(HANDLERS, **options)
        await server.start(listener)
        with structlog.testing.capture_logs() as lines:
            for _ in range(20):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                writer.write(b"GET / HTTP")
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
        assert server.refused == 20
        assert [each["event"] for each in lines] == [event]
        await server.close()

    asyncio.run(run())


def test_requests_that_fail_are_not_logged_one_by_one() -> None:
    async def scenario(host: str, port: int) -> None:
        client = RemotingClient(host, port)
        with structlog.testing.capture_logs() as lines:
            for _ in range(20):
                with pytest.raises(CommandRefused):
                    await client.request(FAILS)
        assert [(each["event"], each["code"]) for each in lines] == [
            ("a remoting request failed", FAILS)
        ]
        client.close()

    _served(scenario)


def test_an_idle_connection_is_closed() -> None:
    async def scenario(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(struct.pack(">I", 100))
        assert await reader.read() == b""
        writer.close()

    _served(scenario, idle_timeout_s=0.01)


def test_peers_that_are_not_allowed_or_too_many_are_closed() -> None:
    async def scenario(host: str, port: int) -> None:
        with pytest.raises(PeerUnreachable):
            await RemotingClient(host, port).request(ECHO)

    _served(scenario, allows=lambda address: address != "127.0.0.1")
    _served(scenario, connections_max=0)


def test_a_server_that_closes_ends_waiting_requests() -> None:
    async def scenario() -> None:
        listener = bind("127.0.0.1", 0)
        host, port = listener.getsockname()
        started = asyncio.Event()

        async def wait(request: Command, connection: Connection) -> Response:
            started.set()
            return await _never(request, connection)

        server = RemotingServer({SLOW: wait})
        await server.start(listener)
        request = asyncio.create_task(RemotingClient(host, port).request(SLOW, timeout_s=60))
        await started.wait()
        await server.close()
        with pytest.raises(PeerUnreachable):
            await request

    asyncio.run(scenario())


def test_the_json_of_a_header_has_the_names_of_rocketmq() -> None:
    frame = remoting.encode(Command(code=1, ext_fields={"k": "v"}))
    length = struct.unpack_from(">I", frame, 4)[0]
    assert json.loads(frame[8 : 8 + length]).keys() == {
        *("code", "language", "version", "opaque", "flag", "remark", "extFields")
    }
