"""Expressions are compiled off the event loop, and one client compiles a few at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from mqstore.service import expressions, problems
from mqstore.service.expressions import CLIENT_SHARE, COMPILED_AT_ONCE_MAX, Compilations
from mqstore.service.http import HotRequest, HotRoute, Reply
from mqstore.service.limits import client_of
from mqstore.service.problems import Problem
from mqstore.storage.errors import FilterError
from mqstore.storage.filter import compile_expression
from mqstore.storage.filter.expression import EXPRESSION_LENGTH_MAX, Filter
from mqstore.storage.layout import StoreFormat
from mqstore.wire.operation import Role
from tests.unit.service.fast_path.test_connection import OPERATION, post, serving

FORMAT = StoreFormat.V5_X
SHARE = COMPILED_AT_ONCE_MAX * CLIENT_SHARE // 100
Compile = Callable[[str, StoreFormat], Filter]


class Gate:
    """Compiles once it is open; counts what waits in it, on its thread."""

    def __init__(self, compile_: Compile) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()
        self._compile = compile_

    def __call__(self, text: str, store_format: StoreFormat) -> Filter:
        self.entered.set()
        assert self.opened.wait(60)
        return self._compile(text, store_format)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    found = Gate(compile_expression)
    monkeypatch.setattr(expressions, "compile_expression", found)
    return found


def run(scenario: Callable[[Compilations], Awaitable[None]]) -> None:
    async def whole() -> None:
        compilations = Compilations()
        try:
            await scenario(compilations)
        finally:
            compilations.stop()

    asyncio.run(whole())


def test_health_is_answered_while_a_client_floods_with_expressions(gate: Gate) -> None:
    """No expression is compiled before all of health's answers are there: were one of them on the
    event loop, nothing would be answered."""

    async def scenario(compilations: Compilations) -> None:
        async def compile_(request: HotRequest) -> Reply:
            text = (await request.body()).decode()
            found = await compilations.compile(text, FORMAT, client_of(request.scope))
            return Reply(found.text.encode())

        route = HotRoute("POST", "/compile", Role.CONSUME, compile_, OPERATION)
        async with serving(route) as server:
            texts = [f"flood{number} > 1" for number in range(SHARE + 5)]
            requests = [
                asyncio.ensure_future(server.request(post(b"/compile", text.encode())))
                for text in texts
            ]
            await asyncio.to_thread(gate.entered.wait, 60)
            live = b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
            async with server.connection() as connection:
                for _ in range(20):
                    assert (await connection.request(live)).status == 200
            while sum(each.done() for each in requests) < 5:
                await asyncio.wait(
                    [each for each in requests if not each.done()],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            refused = [each.result() for each in requests if each.done()]
            assert {each.status for each in refused} == {429}
            assert all(each.header("retry-after") == "1" for each in refused)
            gate.opened.set()
            answers = await asyncio.gather(*requests)
        assert sorted(each.status for each in answers) == [200] * SHARE + [429] * 5

    run(scenario)


def test_the_event_loop_turns_while_a_long_expression_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, while_compiling = 0, 0

    def counted(text: str, store_format: StoreFormat) -> Filter:
        nonlocal while_compiling
        begun = turns
        try:
            return compile_expression(text, store_format)
        finally:
            while_compiling += turns - begun

    monkeypatch.setattr(expressions, "compile_expression", counted)

    async def scenario(compilations: Compilations) -> None:
        nonlocal turns
        for name in "abcde":
            text = " OR ".join([f"{name} = 1"] * 450)[:EXPRESSION_LENGTH_MAX].rpartition(" OR ")[0]
            compiling = asyncio.ensure_future(compilations.compile(text, FORMAT, "a"))
            while not compiling.done():
                turns += 1
                await asyncio.sleep(0)
            assert compiling.result().matches({name: "1"})

    run(scenario)
    assert while_compiling > 0


def test_all_clients_together_have_a_bound_too(gate: Gate) -> None:
    async def scenario(compilations: Compilations) -> None:
        def compile_one(number: int) -> asyncio.Future[Filter]:
            client = f"10.0.0.{number // SHARE}"
            found = compilations.compile(f"bound{number} > 1", FORMAT, client)
            return asyncio.ensure_future(found)

        requests = [compile_one(number) for number in range(COMPILED_AT_ONCE_MAX)]
        with pytest.raises(Problem) as caught:
            await compile_one(COMPILED_AT_ONCE_MAX)
        assert caught.value.kind is problems.OVERLOADED
        gate.opened.set()
        await asyncio.gather(*requests)
        await compile_one(COMPILED_AT_ONCE_MAX)
        assert compilations.waiting.taken == 0

    run(scenario)


def test_what_is_compiled_already_waits_for_nothing(gate: Gate) -> None:
    async def scenario(compilations: Compilations) -> None:
        gate.opened.set()
        first = await compilations.compile("known > 1", FORMAT, "a")
        gate.opened.clear()
        assert await compilations.compile("known > 1", FORMAT, "a") is first

    run(scenario)


def test_an_expression_that_is_refused_gives_its_turn_back() -> None:
    async def scenario(compilations: Compilations) -> None:
        for _ in range(SHARE + 1):
            with pytest.raises(FilterError):
                await compilations.compile("a >", FORMAT, "a")
        assert compilations.waiting.taken == 0

    run(scenario)
