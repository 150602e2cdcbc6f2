"""What a head decides is decided once for a connection; nobody can tell by the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.service import auth, problems
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute, Reply
from mqstore.service.problems import Problem
from mqstore.service.quick import HEADS_KEPT, Prepared
from mqstore.storage.errors import TopicUnknown
from tests.unit.service.test_direct import BODY_MAX, OPERATION, Server, post, serving

PATH: Final = b"/quick/a"
PARSED: Final = b"/%71uick/a"
"""The same path, which is never plain."""
UNDONE: Final = {
    b"none": lambda: None,
    b"problem": lambda: _raised(Problem(problems.BAD_JSON, "no")),
    b"storage error": lambda: _raised(TopicUnknown("no")),
}
"""Bodies with which nothing is done the quick way, and how it says so."""


def _raised(error: Exception) -> None:
    raise error


class Echo:
    """A hot route that answers a body with itself, once ``turns`` allows it where it is "wait"."""

    def __init__(self) -> None:
        self.prepared: list[dict[str, str]] = []
        """The query of each head that was looked at."""
        self.quick: list[bytes] = []
        """Bodies that were done the quick way."""
        self.handled: list[bytes] = []
        self.turns = asyncio.Event()
        self.waiting = asyncio.Event()

    @property
    def route(self) -> HotRoute:
        return HotRoute(
            *("POST", "/quick/{name}", Role.PRODUCE, self.handle, OPERATION), prepare=self.prepare
        )

    async def handle(self, request: HotRequest) -> Reply:
        body = await request.body()
        self.handled.append(body)
        return await self.rest(body) if body == b"wait" else Reply(body, 201)

    def prepare(self, request: HotRequest) -> Prepared:
        if request.header(b"x-odd"):
            raise Problem(problems.BAD_PARAMETER, "odd")
        self.prepared.append(request.query())

        def begin(body: bytes) -> bytes | Coroutine[Any, Any, Reply] | None:
            if body in UNDONE:
                return UNDONE[body]()
            self.quick.append(body)
            return self.rest(body) if body == b"wait" else body

        return Prepared(begin, 201)

    async def rest(self, body: bytes) -> Reply:
        self.waiting.set()
        await self.turns.wait()
        return Reply(body, 201)


def run(scenario: Callable[[Server, Echo], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        echo = Echo()
        async with serving(echo.route, **settings) as server:
            try:
                await scenario(server, echo)
            finally:
                echo.turns.set()

    asyncio.run(whole())


def test_the_answer_is_that_of_the_other_ways() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for body in (b"", b"one", b"another", b"x" * 100_000):
                quick = await connection.ask(post(PATH, body))
                parsed = await server.ask(post(PARSED, body))
                assert quick.but_ids == parsed.but_ids
                assert quick.header("x-request-id") != parsed.header("x-request-id")
        assert echo.quick == echo.handled

    run(scenario)


def test_a_head_is_looked_at_once_for_a_connection_whatever_its_length() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        for _ in range(2):
            async with server.connection() as connection:
                for body in (b"1", b"22", b"333"):
                    await connection.ask(post(PATH, body))
                    await connection.ask(post(PATH + b"?n=1", body))
        assert echo.prepared == [{}, {"n": "1"}] * 2
        assert len(echo.quick) == 12

    run(scenario)


def test_a_connection_keeps_a_bounded_number_of_heads() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for number in range(3 * HEADS_KEPT):
                await connection.ask(post(PATH + b"?n=%d" % number))
        assert len(server.protocols[0]._quick) <= HEADS_KEPT
        assert len(echo.quick) == 3 * HEADS_KEPT

    run(scenario)


@pytest.mark.parametrize("body", UNDONE)
def test_what_was_not_done_goes_the_direct_way(body: bytes) -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        answer = await server.ask(post(PATH, body))
        assert (answer.status, answer.body) == (201, body)
        assert (echo.quick, echo.handled) == ([], [body])

    run(scenario)


@pytest.mark.parametrize("field", [b"x-odd: 1", b"x-request-id: mine-1"])
def test_an_odd_head_has_no_quick_way(field: bytes) -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for _ in range(2):
                answer = await connection.ask(post(PATH, b"body", field))
                assert answer.status == 201
        assert (echo.quick, echo.handled) == ([], [b"body"] * 2)

    run(scenario)


def test_each_answer_is_written_to_the_access_log() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        await server.ask(post(PATH, b"body"))
        assert echo.handled == [b"body"]

    run(scenario, access_log=True)


def test_who_waits_is_done_once_and_holds_a_request_until_the_answer() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        asked = asyncio.create_task(server.ask(post(PATH, b"wait")))
        await echo.waiting.wait()
        assert server.api.limits.requests.taken == 1
        refused = await server.ask(post(PATH, b"another"))
        assert refused.status == 503
        echo.turns.set()
        assert (await asked).body == b"wait"
        assert server.api.limits.requests.taken == 0
        assert (echo.quick, echo.handled) == ([b"wait"], [])

    run(scenario, max_requests=1, max_client_share=100)


def test_a_request_behind_one_that_waits_is_answered_after_it() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(PATH, b"wait"))
            await echo.waiting.wait()
            connection.writer.write(post(PATH, b"next"))
            echo.turns.set()
            assert [(await connection.answer()).body for _ in range(2)] == [b"wait", b"next"]

    run(scenario)


def test_requests_of_one_turn_of_the_loop_are_answered_in_their_order() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            await connection.ask(post(PATH, b"0"))
            (protocol,) = server.protocols
            for path, body in ((PATH, b"1"), (PATH, b"2"), (PARSED, b"3"), (PATH, b"4")):
                protocol.data_received(post(path, body))
            assert [(await connection.answer()).body for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    run(scenario)


def test_what_was_done_is_answered_before_the_service_ends() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            await connection.ask(post(PATH, b"0"))
            (protocol,) = server.protocols
            protocol.data_received(post(PATH, b"1"))
            protocol.shutdown()
            assert (await connection.answer()).body == b"1"

    run(scenario)


def test_who_is_gone_before_the_answer_is_written_disturbs_nobody() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as gone, server.connection() as connection:
            for each in (gone, connection):
                await each.ask(post(PATH, b"0"))
            first, second = server.protocols
            first.data_received(post(PATH, b"1"))
            second.data_received(post(PATH, b"2"))
            first.drop()
            assert (await connection.answer()).body == b"2"

    run(scenario)


def test_a_body_above_the_limit_is_refused() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        assert (await server.ask(post(PATH, b"x" * (BODY_MAX + 1)))).status == 413
        assert echo.quick == []

    run(scenario)


def test_answers_are_counted_by_their_template() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        for _ in range(3):
            await server.ask(post(PATH))
        text = server.api.metrics.render().decode()
        assert 'requests_total{method="POST",route="/quick/{name}",status="201"} 3.0' in text

    run(scenario)


def test_a_token_that_was_taken_away_is_refused_on_a_connection_that_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REREAD_S", 0.0)  # a moment, without waiting for it
    token = tmp_path / "produce"
    token.write_text("old-" * 8)
    given = b"authorization: Bearer " + b"old-" * 8

    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            assert (await connection.ask(post(PATH, b"1", given))).status == 201
            token.write_text("new-" * 8)
            assert (await connection.ask(post(PATH, b"2", given))).status == 401
            token.write_text("old-" * 8)
            assert (await connection.ask(post(PATH, b"3", given))).status == 201
        assert echo.quick == [b"1", b"3"]

    run(scenario, tokens_dir=tmp_path)
