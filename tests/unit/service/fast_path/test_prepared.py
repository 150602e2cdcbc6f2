"""A head is checked once for each connection; the replies are the same as without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.service import auth, http, problems
from mqstore.service.fast_path.connection import HEADS_MAX
from mqstore.service.http import FutureReply, HotRequest, HotResult, HotRoute, Prepared, Reply
from mqstore.service.problems import Problem
from mqstore.storage.errors import TopicUnknown
from mqstore.wire.operation import Role
from tests.unit.service.fast_path.test_connection import BODY_MAX, OPERATION, Server, post, serving

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
    """A hot route that answers a body with itself, once ``turns`` allows it where it is "wait", and
    by the test that finishes ``deferred`` where it is "later"."""

    def __init__(self) -> None:
        self.prepared: list[dict[str, str]] = []
        """The query of each head that was looked at."""
        self.quick: list[bytes] = []
        """Bodies that were done the quick way."""
        self.handled: list[bytes] = []
        self.turns = asyncio.Event()
        self.waiting = asyncio.Event()
        self.deferred: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.cancelled = asyncio.Event()
        """``rest`` was cancelled."""
        self.any_path = False

    @property
    def route(self) -> HotRoute:
        return HotRoute(
            *("POST", "/quick/{name}", Role.PRODUCE, self.handle, OPERATION),
            prepare=self.prepare,
            any_path=self.any_path,
        )

    async def handle(self, request: HotRequest) -> Reply:
        body = await request.body()
        self.handled.append(body)
        return await self.rest(body) if body == b"wait" else Reply(body, 201)

    def prepare(self, request: HotRequest) -> Prepared:
        if request.header(b"x-odd"):
            raise Problem(problems.BAD_PARAMETER, "odd")
        self.prepared.append(request.query())

        def begin(body: bytes, params: Mapping[str, str]) -> HotResult:
            if body in UNDONE:
                UNDONE[body]()
                return None
            self.quick.append(body)
            if body == b"later":
                self.waiting.set()
                return FutureReply(self.deferred)
            if body == b"name":
                return params["name"].encode()
            if body in (b"wait", b"needs client"):
                task = asyncio.get_running_loop().create_task(self.rest(body))
                return FutureReply(task, needs_client=body == b"needs client")
            return body

        return Prepared(begin, 201)

    async def rest(self, body: bytes) -> Reply:
        self.waiting.set()
        try:
            await self.turns.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Reply(body, 201)


def run(
    scenario: Callable[[Server, Echo], Awaitable[None]], *, any_path: bool = False, **settings: Any
) -> None:
    async def whole() -> None:
        echo = Echo()
        echo.any_path = any_path
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
                quick = await connection.request(post(PATH, body))
                parsed = await server.request(post(PARSED, body))
                assert quick.but_ids == parsed.but_ids
                assert quick.header("x-request-id") != parsed.header("x-request-id")
        assert echo.quick == echo.handled

    run(scenario)


def test_a_head_is_looked_at_once_for_a_connection_whatever_its_length() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        for _ in range(2):
            async with server.connection() as connection:
                for body in (b"1", b"22", b"333"):
                    await connection.request(post(PATH, body))
                    await connection.request(post(PATH + b"?n=1", body))
        assert echo.prepared == [{}, {"n": "1"}] * 2
        assert len(echo.quick) == 12

    run(scenario)


def test_a_connection_keeps_a_bounded_number_of_heads() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for number in range(3 * HEADS_MAX):
                await connection.request(post(PATH + b"?n=%d" % number))
        assert len(server.protocols[0]._heads) <= HEADS_MAX
        assert len(echo.quick) == 3 * HEADS_MAX

    run(scenario)


@pytest.mark.parametrize("body", UNDONE)
def test_what_was_not_done_goes_the_direct_way(body: bytes) -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        answer = await server.request(post(PATH, body))
        assert (answer.status, answer.body) == (201, body)
        assert (echo.quick, echo.handled) == ([], [body])

    run(scenario)


def test_requests_under_a_head_that_is_rejected_go_to_uvicorn() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for _ in range(2):
                answer = await connection.request(post(PATH, b"body", b"x-odd: 1"))
                assert answer.status == 201
        assert (echo.quick, echo.handled) == ([], [b"body"] * 2)

    run(scenario)


def test_the_id_that_a_client_chose_is_returned() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        for body in (b"body", b"wait"):
            echo.turns.set()
            answer = await server.request(post(PATH, body, b"x-request-id: mine-1"))
            assert answer.header("x-request-id") == "mine-1"
        assert echo.quick == [b"body", b"wait"]

    run(scenario)


def test_each_answer_is_written_to_the_access_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(http.log, "info", lambda _, **line: lines.append(line), raising=False)

    async def scenario(server: Server, echo: Echo) -> None:
        await server.request(post(PATH, b"body"))
        assert (echo.quick, echo.handled) == ([b"body"], [])

    run(scenario, access_log=True)
    (line,) = lines
    assert (line["route"], line["status"], line["method"]) == ("/quick/{name}", 201, "POST")


@pytest.mark.parametrize("body", [b"wait", b"needs client"])
def test_work_that_only_its_client_needs_ends_when_the_client_disconnects(body: bytes) -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(PATH, body))
            await echo.waiting.wait()
        await server.left.wait()
        if body == b"needs client":
            await echo.cancelled.wait()
        else:
            assert server.api.limits.requests.taken == 1
            echo.turns.set()
        assert (await server.request(post(PATH, b"next"))).body == b"next"
        assert server.api.limits.requests.taken == server.api.limits.memory.taken == 0
        assert echo.cancelled.is_set() == (body == b"needs client")
        status = 499 if body == b"needs client" else 201
        text = server.api.metrics.render().decode()
        assert f'route="/quick/{{name}}",status="{status}"' in text

    run(scenario)


def test_requests_behind_a_later_answer_are_answered_before_the_service_ends() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(PATH, b"later"))
            await echo.waiting.wait()
            (protocol,) = server.protocols
            protocol.data_received(post(PATH, b"2"))
            assert server.api.limits.memory.taken > len(b"later")
            protocol.shutdown()
            echo.deferred.set_result(b"1")
            assert [(await connection.answer()).body for _ in range(2)] == [b"1", b"2"]
            assert await connection.reader.read() == b""
        assert server.api.limits.memory.taken == 0

    run(scenario)


def test_who_waits_is_done_once_and_holds_a_request_until_the_answer() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        reply = asyncio.create_task(server.request(post(PATH, b"wait")))
        await echo.waiting.wait()
        assert server.api.limits.requests.taken == 1
        refused = await server.request(post(PATH, b"another"))
        assert refused.status == 503
        echo.turns.set()
        assert (await reply).body == b"wait"
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
            await connection.request(post(PATH, b"0"))
            (protocol,) = server.protocols
            for path, body in ((PATH, b"1"), (PATH, b"2"), (PARSED, b"3"), (PATH, b"4")):
                protocol.data_received(post(path, body))
            assert [(await connection.answer()).body for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    run(scenario)


def test_what_was_done_is_answered_before_the_service_ends() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            await connection.request(post(PATH, b"0"))
            (protocol,) = server.protocols
            protocol.data_received(post(PATH, b"1"))
            protocol.shutdown()
            assert (await connection.answer()).body == b"1"

    run(scenario)


def test_one_preparation_does_for_every_path_where_the_route_says_so() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            for name in (b"a", b"b", b"c"):
                answer = await connection.request(post(b"/quick/" + name, b"name"))
                assert answer.body == name
            await connection.request(post(b"/quick/d?n=1", b"name"))
            await connection.request(post(b"/quick/e", b"name", b"x-other: field"))
        assert echo.prepared == [{}, {"n": "1"}, {}]
        assert echo.quick == [b"name"] * 5

    run(scenario, any_path=True)


def test_an_answer_that_comes_later_is_that_of_the_other_ways() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            reply = asyncio.create_task(connection.request(post(PATH, b"later")))
            await echo.waiting.wait()
            assert server.api.limits.requests.taken == 1
            assert server.api.limits.memory.taken == len(b"later")
            assert (await server.request(post(PARSED, b"other"))).status == 503
            echo.deferred.set_result(b"other")
            answer = await reply
            assert server.api.limits.requests.taken == server.api.limits.memory.taken == 0
            assert answer.but_ids == (await server.request(post(PARSED, b"other"))).but_ids
            assert (await connection.request(post(PATH, b"next"))).body == b"next"
        text = server.api.metrics.render().decode()
        assert "mqstore_http_in_flight 0.0" in text
        assert 'requests_total{method="POST",route="/quick/{name}",status="201"} 3.0' in text

    run(scenario, max_requests=1, max_client_share=100)


def test_a_refusal_that_comes_later_is_sent_and_counted_as_any_other() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            reply = asyncio.create_task(connection.request(post(PATH, b"later")))
            await echo.waiting.wait()
            echo.deferred.set_exception(Problem(problems.BAD_PARAMETER, "odd"))
            answer = await reply
            assert answer.status == problems.BAD_PARAMETER.status
            assert b"odd" in answer.body
            assert (await connection.request(post(PATH, b"next"))).body == b"next"
        assert server.api.limits.requests.taken == server.api.limits.memory.taken == 0
        text = server.api.metrics.render().decode()
        assert 'problems_total{problem="bad-parameter",route="/quick/{name}"} 1.0' in text

    run(scenario)


def test_a_defect_behind_a_later_answer_is_one_request_s_alone() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            reply = asyncio.create_task(connection.request(post(PATH, b"later")))
            await echo.waiting.wait()
            echo.deferred.set_exception(ZeroDivisionError())
            assert (await reply).status == 500
            assert (await connection.request(post(PATH, b"next"))).body == b"next"

    run(scenario)


def test_requests_behind_a_later_answer_are_answered_after_it() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(PATH, b"later"))
            await echo.waiting.wait()
            (protocol,) = server.protocols
            protocol.data_received(post(PATH, b"2"))
            protocol.data_received(post(PARSED, b"3"))
            echo.deferred.set_result(b"1")
            assert [(await connection.answer()).body for _ in range(3)] == [b"1", b"2", b"3"]

    run(scenario)


def test_a_later_answer_of_a_service_that_ends_is_the_connection_s_last() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            connection.writer.write(post(PATH, b"later"))
            await echo.waiting.wait()
            (protocol,) = server.protocols
            protocol.shutdown()
            echo.deferred.set_result(b"1")
            answer = await connection.answer()
            assert (answer.body, answer.header("connection")) == (b"1", "close")
            assert await connection.reader.read() == b""

    run(scenario)


def test_a_client_gone_before_a_later_reply_does_not_disturb_others() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as gone:
            gone.writer.write(post(PATH, b"later"))
            await echo.waiting.wait()
            (protocol,) = server.protocols
            protocol.drop()
            assert await gone.reader.read() == b""
        echo.deferred.set_result(b"1")
        assert (await server.request(post(PATH, b"next"))).body == b"next"
        assert server.api.limits.requests.taken == server.api.limits.memory.taken == 0

    run(scenario)


def test_a_client_gone_before_the_reply_is_written_does_not_disturb_others() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as gone, server.connection() as connection:
            for each in (gone, connection):
                await each.request(post(PATH, b"0"))
            first, second = server.protocols
            first.data_received(post(PATH, b"1"))
            second.data_received(post(PATH, b"2"))
            first.drop()
            assert (await connection.answer()).body == b"2"

    run(scenario)


def test_a_body_above_the_limit_is_refused() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        assert (await server.request(post(PATH, b"x" * (BODY_MAX + 1)))).status == 413
        assert echo.quick == []

    run(scenario)


def test_answers_are_counted_by_their_template() -> None:
    async def scenario(server: Server, echo: Echo) -> None:
        for _ in range(3):
            await server.request(post(PATH))
        text = server.api.metrics.render().decode()
        assert 'requests_total{method="POST",route="/quick/{name}",status="201"} 3.0' in text

    run(scenario)


def test_a_token_that_was_taken_away_is_refused_on_a_connection_that_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "RELOAD_INTERVAL_S", 0.0)  # a moment, without waiting for it
    token = tmp_path / "produce"
    token.write_text("old-" * 8)
    given = b"authorization: Bearer " + b"old-" * 8

    async def scenario(server: Server, echo: Echo) -> None:
        async with server.connection() as connection:
            assert (await connection.request(post(PATH, b"1", given))).status == 201
            token.write_text("new-" * 8)
            assert (await connection.request(post(PATH, b"2", given))).status == 401
            token.write_text("old-" * 8)
            assert (await connection.request(post(PATH, b"3", given))).status == 201
        assert echo.quick == [b"1", b"3"]

    run(scenario, tokens_dir=tmp_path)
