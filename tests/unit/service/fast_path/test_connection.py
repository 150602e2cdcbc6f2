"""Plain requests of hot routes go past uvicorn; the replies are the same.

Each behaviour is tested on the fast path and over uvicorn: a path with an escape is never plain.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from mqstore.service.app import Api
from mqstore.service.fast_path import plain
from mqstore.service.fast_path.connection import FastConnection, connection_class
from mqstore.service.health import Health
from mqstore.service.http import FutureReply, Handler, HotRequest, HotRoute, Prepared, Reply
from mqstore.service.limits import Limits
from mqstore.service.settings import load
from mqstore.storage.errors import TopicUnknown
from mqstore.wire.operation import Role

ECHO: Final = {True: b"/echo/a", False: b"/%65cho/a"}
"""The same path: one that is plain, and one that is not."""
LOOK: Final = b"/look", b"/%6cook"
BOTH_WAYS: Final = pytest.mark.parametrize("is_plain", [True, False], ids=["fast", "uvicorn"])
PYPROJECT: Final = Path(__file__).parents[4] / "libs" / "service" / "pyproject.toml"
BODY_MAX: Final = 200_000
OPERATION: Final = {"responses": {"200": {"description": "Done."}}}


@dataclass
class Server:
    """One service on a port of its own, and what it saw."""

    address: tuple[str, int]
    protocols: list[FastConnection]
    api: Api
    turns: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that ``/wait`` waits for."""
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A connection was lost."""
    direct: int = 0
    """Requests that took the fast path."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def request(self, request: bytes) -> Answer:
        async with self.connection() as connection:
            return await connection.request(request)


@dataclass
class Answer:
    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        found = re.search(rf"(?im)^{name}: (.*?)\r$".encode(), self.head)
        return "" if found is None else found[1].decode()

    @property
    def but_ids(self) -> tuple[int, list[bytes], bytes]:
        """The parts of a reply that do not depend on the way of the request."""
        own = self.header("x-request-id").encode()
        lines = [line for line in self.head.split(b"\r\n") if not line.startswith(b"date:")]
        return (
            self.status,
            [each.replace(own, b"ID") for each in lines],
            self.body.replace(own, b""),
        )


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self, request: bytes) -> Answer:
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None
        return Answer(int(head.split()[1]), head, await self.reader.readexactly(int(length[1])))


def post(path: bytes, body: bytes = b"", *fields: bytes) -> bytes:
    host = () if any(each.startswith(b"host:") for each in fields) else (b"host: localhost",)
    lines = (*host, b"content-length: %d" % len(body), *fields)
    return b"POST %b HTTP/1.1\r\n%b\r\n\r\n%b" % (path, b"\r\n".join(lines), body)


def hot_route(method: str, path: str, handler: Handler) -> HotRoute:
    """A route whose handler does its requests on both ways."""

    def prepare(head: HotRequest) -> Prepared:
        def begin(body: bytes, params: Mapping[str, str]) -> FutureReply:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body}

            request = HotRequest(head.scope, receive, params, Limits.of(load()))
            coroutine: Coroutine[Any, Any, Reply] = handler(request)  # type: ignore[assignment]
            return FutureReply(asyncio.get_running_loop().create_task(coroutine))

        return Prepared(begin)

    return HotRoute(method, path, Role.PRODUCE, handler, OPERATION, prepare=prepare)


def common_routes(server: Server) -> list[HotRoute]:
    """The hot routes of every test."""

    async def echo(request: HotRequest) -> Reply:
        return Reply(
            await request.body(), 201, headers=((b"x-name", request.params["name"].encode()),)
        )

    async def refuse(request: HotRequest) -> Reply:
        raise TopicUnknown("no topic of that name")

    async def fail(request: HotRequest) -> Reply:
        raise RuntimeError("secret detail")

    async def wait(request: HotRequest) -> Reply:
        body = await request.body()
        server.waiting.set()
        await asyncio.sleep(0)
        await server.turns.wait()
        return Reply(body)

    async def look(request: HotRequest) -> Reply:
        return Reply(str(request.query()).encode())

    async def split(request: HotRequest) -> Reply:
        return Reply(b"", headers=((b"x-name", b"a\r\nset-cookie: b"),))

    return [
        hot_route("POST", "/echo/{name}", echo),
        replace(hot_route("POST", "/things/{name}", echo), any_path=True),
        hot_route("POST", "/refuse", refuse),
        hot_route("POST", "/fail", fail),
        hot_route("POST", "/wait", wait),
        hot_route("GET", "/look", look),
        hot_route("POST", "/split", split),
    ]


def counting_class(server: Server) -> type[FastConnection]:
    """The connections of the server, which count the requests on the fast path."""
    front = server.api.front()
    bounded = connection_class(front, max_header_size=4096, send_timeout_s=30)

    class Counting(bounded):  # type: ignore[valid-type,misc]  # a class made at run time
        def _reply(self, *args: Any) -> bool:
            is_done: bool = super()._reply(*args)
            server.direct += is_done
            return is_done

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            server.left.set()

    return Counting


@asynccontextmanager
async def serving(*routes: HotRoute, **settings: Any) -> AsyncIterator[Server]:
    """Serve the common routes and ``routes`` on a free port."""
    api = Api(
        load(max_request_size=BODY_MAX, **settings),
        Health(),
        title="test",
        description="A test.",
        tags={},
    )
    loop = asyncio.get_running_loop()
    found = Server(("", 0), [], api)
    for route in (*common_routes(found), *routes):
        api.add_hot(route)
    protocol_class = counting_class(found)
    config = uvicorn.Config(
        api.front(), http=protocol_class, ws="none", lifespan="off", log_config=None
    )
    config.load()
    state = ServerState()

    def connected() -> FastConnection:
        protocol = protocol_class(config, state, {}, loop)
        found.protocols.append(protocol)
        return protocol

    listener = await loop.create_server(connected, "127.0.0.1", 0)
    found.address = listener.sockets[0].getsockname()
    try:
        yield found
    finally:
        listener.close()
        found.turns.set()
        if state.tasks:
            await asyncio.wait(state.tasks)


def run(scenario: Callable[[Server], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        async with serving(**settings) as server:
            await scenario(server)

    asyncio.run(whole())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The requests whose heads were read."""
    found = []

    def read(data: bytes) -> plain.PlainRequest | None:
        found.append(data)
        return plain_read(data)

    plain_read = plain.read
    monkeypatch.setattr(plain, "read", read)
    return found


def test_heads_of_two_requests_in_turn_are_read_once_each(reads: list[bytes]) -> None:

    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            for number in range(6):
                name = b"a" if number % 2 else b"b"
                answer = await connection.request(post(b"/echo/" + name, b"%d" % number))
                assert (answer.header("x-name"), answer.body) == (name.decode(), b"%d" % number)
        assert (server.direct, len(reads)) == (6, 2)

    run(scenario)


def test_a_head_is_kept_beside_requests_whose_paths_do_not_repeat(reads: list[bytes]) -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            for number in range(6):
                await connection.request(post(b"/echo/a"))
                answer = await connection.request(post(b"/things/%d" % number))
                assert answer.header("x-name") == str(number)
        assert (server.direct, len(reads)) == (12, 1 + 6)

    run(scenario)


@BOTH_WAYS
def test_one_connection_is_answered_again_and_again(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            for number in range(5):
                answer = await connection.request(post(ECHO[is_plain], b"%d" % number))
                assert (answer.status, answer.body) == (201, b"%d" % number)
                assert answer.header("x-name") == "a"
        assert server.direct == (5 if is_plain else 0)

    run(scenario)


@pytest.mark.parametrize(
    ("request_line", "body", "fields"),
    [
        (b"/echo/a", b"body", (b"x-request-id: abc-1",)),
        (b"/refuse", b"", ()),
        (b"/fail", b"", ()),
        (b"/echo/a", b"x" * (BODY_MAX + 1), ()),
        (b"/echo/a", b"", (b"host: example.org",)),
        (b"/echo/a", b"", (b"connection: keep-alive",)),
    ],
)
def test_both_ways_answer_the_same(
    request_line: bytes, body: bytes, fields: tuple[bytes, ...]
) -> None:
    async def scenario(server: Server) -> None:
        whole = await server.request(post(request_line, body, *fields))
        escaped = b"/%" + b"%x" % request_line[1] + request_line[2:]
        parsed = await server.request(post(escaped, body, *fields))
        assert whole.but_ids == parsed.but_ids

    run(scenario)


@BOTH_WAYS
def test_a_token_is_needed_on_each_request(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            for fields, status in (
                ((), 401),
                ((b"authorization: Bearer rightrightrightright",), 201),
                ((b"authorization: Bearer wrong",), 401),
                ((b"authorization: Bearer lookslookslookslooks",), 403),
                ((), 401),
            ):
                assert (
                    await connection.request(post(ECHO[is_plain], b"", *fields))
                ).status == status

    run(scenario, token_produce="right" * 4, token_consume="looks" * 4)


@BOTH_WAYS
def test_every_answer_is_counted_by_its_template(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        for path in (ECHO[is_plain], b"/refuse" if is_plain else b"/%72efuse"):
            await server.request(post(path))
        text = server.api.metrics.render().decode()
        assert 'requests_total{method="POST",route="/echo/{name}",status="201"} 1.0' in text
        assert 'problems_total{problem="topic-unknown",route="/refuse"} 1.0' in text
        assert "mqstore_http_in_flight 0.0" in text

    run(scenario)


@BOTH_WAYS
def test_who_waits_holds_a_request_and_its_bytes_until_the_answer(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        path = b"/wait" if is_plain else b"/%77ait"
        reply = asyncio.create_task(server.request(post(path, b"x" * 1000)))
        await server.waiting.wait()
        limits = server.api.limits
        assert (limits.requests.taken, limits.memory.taken) == (1, 1000)
        refused = await server.request(post(ECHO[is_plain]))
        assert refused.status == 503
        server.turns.set()
        assert (await reply).body == b"x" * 1000
        assert (limits.requests.taken, limits.memory.taken) == (0, 0)

    run(scenario, max_requests=1, max_client_share=100)


@BOTH_WAYS
@pytest.mark.parametrize(("method", "status"), [("POST", 201), ("GET", 503)])
def test_what_was_done_is_answered_however_much_is_held(
    method: str, status: int, is_plain: bool
) -> None:
    done = []

    async def do(_: HotRequest) -> Reply:
        done.append(method)
        return Reply(b"x" * 2 * BODY_MAX, 201)

    async def whole() -> None:
        route = hot_route(method, "/do", do)
        settings = {"max_pending_bytes": BODY_MAX, "max_client_share": 100}
        async with serving(route, **settings) as server:
            path = b"/do" if is_plain else b"/%64o"
            request = post(path).replace(b"POST", method.encode())
            answer = await server.request(request)
            assert (done, answer.status) == ([method], status)
            assert server.api.limits.memory.taken == 0

    asyncio.run(whole())


@BOTH_WAYS
def test_a_client_that_disconnects_while_waiting_does_not_disturb_others(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(b"/wait" if is_plain else b"/%77ait", b"x"))
            await server.waiting.wait()
        server.turns.set()
        assert (await server.request(post(ECHO[is_plain], b"next"))).body == b"next"
        assert server.api.limits.requests.taken == 0

    run(scenario)


@BOTH_WAYS
def test_pipelined_requests_are_answered_in_their_order(is_plain: bool) -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(b"/wait" if is_plain else b"/%77ait", b"first"))
            await server.waiting.wait()
            connection.writer.write(
                post(ECHO[is_plain], b"second") + post(ECHO[is_plain], b"third")
            )
            await connection.writer.drain()
            server.turns.set()
            bodies = [(await connection.answer()).body for _ in range(3)]
            assert bodies == [b"first", b"second", b"third"]
            assert (await connection.request(post(ECHO[is_plain], b"fourth"))).body == b"fourth"

    run(scenario)


def test_requests_that_come_together_are_the_parsers() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(b"/echo/a", b"1") + post(b"/echo/b", b"2"))
            assert [(await connection.answer()).body for _ in range(2)] == [b"1", b"2"]
        assert server.direct == 0

    run(scenario)


@pytest.mark.parametrize("step", [1, 7, 50_000])
def test_a_body_that_comes_in_parts_is_put_together(step: int) -> None:
    request = post(b"/echo/a", bytes(range(256)) * (1 if step < 100 else 700))

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        async with server.connection() as connection:
            await connection.request(post(b"/echo/a"))
            (protocol,) = server.protocols
            for at in range(0, len(request), step):
                loop.call_soon(protocol.data_received, request[at : at + step])
            answer = await connection.answer()
            assert post(b"/echo/a", answer.body) == request
        assert server.api.limits.memory.taken == 0

    run(scenario)


def test_a_slow_body_is_left_to_the_parser_and_its_time_limit() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(b"/echo/a", b"x" * 10)[:-3])
            answer = await connection.answer()
            assert answer.status == 408
        assert (server.direct, server.api.limits.memory.taken) == (0, 0)

    run(scenario, receive_timeout_s=0.05)


def test_parts_above_what_may_be_held_are_refused() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as first, server.connection() as second:
            part = post(b"/echo/a", b"x" * BODY_MAX)[: BODY_MAX // 2 + 20_000]
            first.writer.write(part)
            second.writer.write(part)
            answers = [asyncio.create_task(each.answer()) for each in (first, second)]
            done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result().status for each in done} == {503}
            for each in answers:
                each.cancel()

    run(scenario, max_pending_bytes=BODY_MAX, max_client_share=100)


def test_a_part_that_is_given_up_gives_back_what_it_held() -> None:
    async def scenario(server: Server) -> None:
        memory = server.api.limits.memory
        async with server.connection() as connection:
            await connection.request(post(b"/echo/a"))
            (protocol,) = server.protocols
            protocol.data_received(post(b"/echo/a", b"x" * 1000)[:-500])
            assert memory.taken > 500
        await server.left.wait()
        assert memory.taken == 0

    run(scenario)


def test_a_reply_with_a_header_of_two_lines_is_not_sent() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            answer = await connection.request(post(b"/split"))
            assert (answer.status, b"set-cookie" in answer.head) == (500, False)
        assert server.direct == 1

    run(scenario)


def test_a_connection_that_is_used_is_not_closed_as_idle() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            await connection.request(post(b"/%65cho/a"))  # from now on the keep-alive timer runs
            (protocol,) = server.protocols
            protocol.timeout_keep_alive = 3600
            await connection.request(post(b"/echo/a"))
            protocol.timeout_keep_alive_handler()
            assert (await connection.request(post(b"/echo/a", b"still"))).body == b"still"
            protocol.timeout_keep_alive = 0
            protocol.timeout_keep_alive_handler()
            assert await connection.reader.read() == b""

    run(scenario)


def test_a_connection_is_ended_in_order_while_its_request_waits() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(b"/wait", b"last"))
            await server.waiting.wait()
            server.protocols[0].shutdown()
            server.turns.set()
            answer = await connection.answer()
            assert (answer.body, answer.header("connection")) == (b"last", "close")
            assert await connection.reader.read() == b""

    run(scenario)


def test_queries_are_read_alike() -> None:
    async def scenario(server: Server) -> None:
        for query in (b"", b"?a=1&b=%20x", b"?a=", b"?a+b=1"):
            rest = query + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
            whole, parsed = [await server.request(b"GET " + path + rest) for path in LOOK]
            assert whole.but_ids == parsed.but_ids
        assert server.direct == 4

    run(scenario)


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"/echo/a", b"", b"transfer-encoding: chunked"),
        post(b"/echo/a", b"", b"expect: 100-continue"),
        post(b"/echo/a", b"", b"connection: close"),
        post(b"/echo/a", b"", b"connection: upgrade", b"upgrade: h2c"),
        post(b"/echo/a", b"", b"content-length: 0"),
        post(b"/echo/a", b"", b"content-length: 5"),
        post(b"/echo/a", b"12345", b"Content-Length:5"),
        post(b"/echo/a", b"12345").replace(b"content-length: 5", b"content-length: +5"),
        post(b"/echo/a", b"12345").replace(b"content-length: 5", b"content-length: 5\r\n 6"),
        post(b"/echo/a", b"12345").replace(b"content-length: 5", b"a: b\ncontent-length: 5"),
        post(b"/echo/a").replace(b"HTTP/1.1", b"HTTP/1.0"),
        post(b"/echo/a").replace(b"POST", b"PUT"),
        post(b"/echo/a#part"),
        post(b"/echo/a", b"", b"bad header: 1"),
        post(b"/echo/a", b"", b" folded"),
        post(b"/echo/a").replace(b"\r\n", b"\n"),
        post(b"/echo/a", b"", b"a: " + b"x" * plain.HEAD_SIZE_MAX),
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n",
    ],
)
def test_what_is_odd_is_never_plain(request_bytes: bytes) -> None:
    assert plain.read(request_bytes) is None


@given(st.lists(st.sampled_from([b"a", b":", b" ", b"\r\n", b"\n", b"\r", b"1", b"\0", b"-"])))
def test_whatever_is_plain_is_one_head_to_its_last_byte(parts: list[bytes]) -> None:
    text = b"POST / HTTP/1.1\r\n" + b"".join(parts) + b"\r\n\r\n"
    found = plain.read(text)
    if found is not None:
        assert found.end <= len(text)
        assert all(b"\n" not in name + value for name, value in found.headers)


def test_a_part_of_a_body_that_looks_like_a_request_is_a_part_of_the_body() -> None:
    async def scenario(server: Server) -> None:
        async with server.connection() as connection:
            inner = post(ECHO[True], b"inner")
            await connection.request(inner)
            (protocol,) = server.protocols
            whole = post(ECHO[True], b"x" + inner)
            cut = len(whole) - len(inner)
            protocol.data_received(whole[:cut])
            protocol.data_received(whole[cut:])
            assert (await connection.answer()).body == b"x" + inner
            for part in (whole[:20], whole[20:cut], whole[cut:]):  # over uvicorn
                protocol.data_received(part)
            assert (await connection.answer()).body == b"x" + inner
            assert (await connection.request(inner)).body == b"inner"

    run(scenario)


def test_the_minor_version_of_uvicorn_is_the_one_whose_protocol_is_extended() -> None:
    """``fast_path.bounds`` rests on a module of uvicorn that is no interface. With another minor
    version compare ``httptools_impl`` with this one, then change the pin and this test."""
    assert uvicorn.__version__.startswith("0.54.")
    assert '"uvicorn>=0.54,<0.55"' in PYPROJECT.read_text()
