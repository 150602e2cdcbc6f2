"""Requests that differ in one value take the lane of their head; the replies are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.service import auth, problems
from mqstore.service.fast_path import plain
from mqstore.service.fast_path.connection import LANES_MAX
from mqstore.service.http import HotRequest, HotResult, HotRoute, Prepared, Reply
from mqstore.service.problems import Problem
from mqstore.wire.operation import Role
from tests.unit.service.fast_path.test_connection import (
    BODY_MAX,
    OPERATION,
    Server,
    post,
    serving,
)

LEFT: Final = 100
"""From this number on, the lane leaves requests to the slow path."""
LARGE: Final = 50
"""The reply to this number is a large one."""


def get(number: int | str, name: str = "a", *fields: bytes, more: str = "") -> bytes:
    line = f"GET /numbers/{name}?{more}offset={number}&x=1 HTTP/1.1".encode()
    return b"\r\n".join([line, b"host: localhost", *fields, b"", b""])


class Numbers:
    """A hot route whose reply is its number, by a lane or by the slow path."""

    def __init__(self, *, has_handler: bool = True) -> None:
        self._has_handler = has_handler
        self.in_lane: list[int] = []
        self.in_general: list[int] = []
        self.prepared = 0

    @property
    def route(self) -> HotRoute:
        path = "/numbers/{name}"
        handler = self.handle if self._has_handler else None
        return HotRoute("GET", path, Role.CONSUME, handler, OPERATION, prepare=self.prepare)

    def reply(self, number: int) -> Reply:
        size = 2 * BODY_MAX if number == LARGE else 0
        return Reply(b"%d" % number + bytes(size), content_type=b"text/plain")

    async def handle(self, request: HotRequest) -> Reply:
        self.in_general.append(int(request.query()["offset"]))
        return self.reply(self.in_general[-1])

    def prepare(self, request: HotRequest) -> Prepared:
        self.prepared += 1
        own = int(request.query()["offset"])

        def begin(_: bytes, __: Mapping[str, str]) -> HotResult:
            if not self._has_handler:
                return None
            self.in_general.append(own)
            return self.reply(own)

        return Prepared(begin, lane=self.lane)

    def lane(self, value: bytes, start: bytes, ending: bytes) -> bytes | None:
        number = int(value)
        if number == LEFT + 1:
            raise Problem(problems.BAD_PARAMETER, "no")
        if number >= LEFT:
            return None
        self.in_lane.append(number)
        body = self.reply(number).body
        fields = b"content-type: text/plain\r\ncontent-length: %d\r\n" % len(body)
        return start + fields + ending + body


def run(
    scenario: Callable[[Server, Numbers], Awaitable[None]],
    *,
    has_handler: bool = True,
    **settings: Any,
) -> None:
    async def whole() -> None:
        numbers = Numbers(has_handler=has_handler)
        async with serving(numbers.route, **settings) as server:
            await scenario(server, numbers)

    asyncio.run(whole())


def test_a_lane_serves_all_numbers() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for number in (7, 8, LARGE, 0, 7):
                reply = await connection.request(get(number))
                other = await server.request(get(number).replace(b"/numbers", b"/%6eumbers"))
                assert reply.but_ids == other.but_ids
                assert reply.header("x-request-id") != other.header("x-request-id")
        assert numbers.in_lane == [7, 8, LARGE, 0, 7]
        assert numbers.prepared == 1

    run(scenario)


def test_heads_that_differ_in_more_have_lanes_of_their_own() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for number in (1, 2):
                for request in (
                    get(number),
                    get(number, "b"),
                    get(number, more="y=2&"),
                    get(number, "a", b"accept: text/plain"),
                ):
                    assert (await connection.request(request)).body == b"%d" % number
        assert (numbers.in_general, numbers.in_lane) == ([], [1] * 4 + [2] * 4)

    run(scenario)


@pytest.mark.parametrize("number", [LEFT, LEFT + 1], ids=["none", "problem"])
def test_a_request_that_its_lane_leaves_takes_the_general_way(number: int) -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for each in (1, number, 2):
                assert (await connection.request(get(each))).body == b"%d" % each
        assert (numbers.in_general, numbers.in_lane) == ([number], [1, 2])

    run(scenario)


@pytest.mark.parametrize("number", ["", "-1", "+1", "1x", "9" * 19, "%31"])
def test_what_is_no_plain_number_takes_no_lane(number: str) -> None:
    assert plain.split_value(get(number)) is None


def test_of_two_numbers_the_last_one_is_split_off() -> None:
    found = plain.split_value(get(2, more="offset=1&"))
    assert found is not None
    assert b"offset=1" in found[0][0], "which HotRequest.query refuses, so that no lane has it"
    assert found[1] == b"2"


@pytest.mark.parametrize("target", ["/a/{}", "/a/{}?x=1", "/a/{}?timestamp="])
def test_an_offset_message_id_at_the_end_of_a_path_is_split_off(target: str) -> None:
    message_id = "7F00000100002A9F00000000000000fF"
    data = f"GET {target.format(message_id)} HTTP/1.1\r\n\r\n".encode()
    begin, _, end = data.partition(message_id.encode())
    assert plain.split_value(data) == ((begin, end), message_id.encode())


@pytest.mark.parametrize("path", ["/a/{}0", "/a/{}/b", "/a/-{}", "/{}%20"])
def test_other_paths_with_hexadecimal_digits_take_no_lane(path: str) -> None:
    data = f"GET {path.format('A' * 32)} HTTP/1.1\r\n\r\n".encode()
    assert plain.split_value(data) is None


def test_the_name_before_an_action_is_split_off() -> None:
    data = b"POST /v1/things/0-A.b_c~:do HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    begin, _, end = data.partition(b"0-A.b_c~")
    assert plain.split_value(data) == ((begin, end), b"0-A.b_c~")


@pytest.mark.parametrize("path", ["/things", "/things/a", "/things/:do", "/a%20b:do", "/a:do?x=1"])
def test_other_paths_of_a_post_take_no_lane(path: str) -> None:
    data = f"POST {path} HTTP/1.1\r\ncontent-length: 0\r\n\r\n".encode()
    assert plain.split_value(data) is None


def test_an_action_takes_a_lane_unless_it_has_a_body() -> None:
    in_lane: list[bytes] = []

    async def handle(request: HotRequest) -> Reply:
        return Reply(request.params["name"].encode() + await request.body())

    def lane(name: bytes, start: bytes, ending: bytes) -> bytes:
        in_lane.append(name)
        fields = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(name)
        return start + fields + ending + name

    def prepare(_: HotRequest) -> Prepared:
        def begin(body: bytes, params: Mapping[str, str]) -> HotResult:
            return Reply(params["name"].encode() + body)

        return Prepared(begin, lane=lane)

    route = HotRoute(
        "POST",
        "/actions/{name}:do",
        Role.CONSUME,
        handle,
        OPERATION,
        prepare=prepare,
        any_path=True,
    )

    async def whole() -> None:
        async with serving(route) as server, server.connection() as connection:
            for name in (b"a", b"b", b"c"):
                for body in (b"", b"+body"):
                    request = post(b"/actions/%b:do" % name, body)
                    reply = await connection.request(request)
                    assert (reply.status, reply.body) == (200, name + body)

    asyncio.run(whole())
    assert in_lane == [b"a", b"b", b"c"]


def test_a_route_without_a_handler_leaves_other_requests_to_fastapi() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            assert (await connection.request(get(1))).body == b"1"
            refused = await connection.request(get(LEFT))
            assert refused.status == 405, "FastAPI has no such route here"
        assert numbers.in_lane == [1]

    run(scenario, has_handler=False)


def test_requests_that_come_together_take_no_lane() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            await connection.request(get(1))
            connection.writer.write(get(2) + get(3))
            assert [(await connection.answer()).body for _ in range(2)] == [b"2", b"3"]
        assert numbers.in_lane == [1]

    run(scenario)


def test_a_connection_keeps_a_bounded_number_of_lanes() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for number in range(LANES_MAX + 2):
                await connection.request(get(1, f"name-{number}"))
        assert len(server.protocols[0]._lanes) <= LANES_MAX

    run(scenario)


def test_the_id_that_a_client_chose_is_returned_and_replies_are_counted() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for number in range(3):
                reply = await connection.request(get(number, "a", b"x-request-id: mine"))
                assert reply.header("x-request-id") == "mine"
        assert numbers.in_lane == [0, 1, 2]
        text = server.api.metrics.render().decode()
        assert 'requests_total{method="GET",route="/numbers/{name}",status="200"} 3.0' in text

    run(scenario)


def test_a_large_reply_counts_towards_the_limit_of_bytes() -> None:
    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            await connection.request(get(1))
            refused = await connection.request(get(LARGE))
            assert (refused.status, numbers.in_lane) == (503, [1, LARGE])
            assert (await connection.request(get(2))).body == b"2"
        assert server.api.limits.memory.taken == 0

    run(scenario, max_pending_bytes=BODY_MAX, max_client_share=100)


def test_a_token_that_was_taken_away_is_refused_in_a_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "RELOAD_INTERVAL_S", 0.0)  # a moment, without waiting for it
    token = tmp_path / "consume"
    token.write_text("old-" * 8)
    given = b"authorization: Bearer " + b"old-" * 8

    async def scenario(server: Server, numbers: Numbers) -> None:
        async with server.connection() as connection:
            for number in (1, 2):
                assert (await connection.request(get(number, "a", given))).status == 200
            token.write_text("new-" * 8)
            assert (await connection.request(get(3, "a", given))).status == 401
            token.write_text("old-" * 8)
            assert (await connection.request(get(4, "a", given))).status == 200
        assert numbers.in_lane == [1, 2, 4]

    run(scenario, tokens_dir=tmp_path)
