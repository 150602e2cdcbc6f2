"""Bounds on connections, requests and bytes: kept, shared, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mqstore.service.limits import (
    SPARE_CONNECTIONS,
    Budget,
    ClientDisconnected,
    Connections,
    Limits,
)
from mqstore.service.problems import CLIENT_OVER_SHARE, Problem
from mqstore.service.settings import load


def _limits(**settings: Any) -> Limits:
    return Limits.of(load(max_request_size=1024, **settings))


def _scope(path: str = "/v1/x", client: str = "10.0.0.1") -> dict[str, Any]:
    return {"type": "http", "path": path, "client": (client, 1), "headers": []}


def _receiving(*chunks: bytes, whole: bool = True) -> Callable[[], Any]:
    messages = [{"type": "http.request", "body": c, "more_body": True} for c in chunks]
    messages.append(
        {"type": "http.request", "body": b"", "more_body": False}
        if whole
        else {"type": "http.disconnect"}
    )

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return receive


def _refusal(budget: Budget, client: str, amount: int = 1) -> str:
    with pytest.raises(Problem) as caught:
        budget.take(client, amount)
    assert caught.value.headers["retry-after"] == "1"
    return caught.value.kind.name


def test_client_above_its_share_is_rejected_while_others_go_on() -> None:
    budget = Budget("things", 10, client_share=50)
    for _ in range(5):
        budget.take("greedy")
    assert _refusal(budget, "greedy") == "client-over-share"
    budget.take("other")
    assert budget.refused == {"overloaded": 0, "client-over-share": 1}


def test_whole_service_above_is_everybodys() -> None:
    budget = Budget("things", 2, client_share=50)
    budget.take("a")
    budget.take("b")
    assert _refusal(budget, "c") == "overloaded"
    budget.give_back("a")
    budget.take("c")
    assert budget.taken == 2


def test_one_request_of_full_size_always_fits_a_share() -> None:
    budget = Budget("bytes", 1000, client_share=1, at_least=800)
    budget.take("a", 800)
    assert _refusal(budget, "a") == "client-over-share"


def test_clients_that_hold_nothing_are_forgotten() -> None:
    budget = Budget("things", 10, client_share=100)
    for number in range(1000):
        budget.take(str(number))
        budget.give_back(str(number))
    assert not budget._by_client


class _Connection:
    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_connections_above_the_limit_push_out_the_oldest_of_their_kind() -> None:
    connections = Connections(Budget("connections", 1, client_share=100))
    assert connections.enter(_Connection(), "a") is None
    spare = [_Connection() for _ in range(SPARE_CONNECTIONS + 1)]
    for each in spare:
        refusal = connections.enter(each, "a")
        assert refusal is not None
        assert refusal.kind.name == "overloaded"
    assert [each.dropped for each in spare] == [True] + [False] * SPARE_CONNECTIONS


def test_connection_that_ends_makes_room() -> None:
    connections = Connections(Budget("connections", 1, client_share=100))
    first, second = _Connection(), _Connection()
    refusal = connections.enter(first, "a")
    connections.leave(second, "a", connections.enter(second, "a"))
    connections.leave(first, "a", refusal)
    assert connections.enter(_Connection(), "b") is None


def test_requests_are_bounded_but_not_those_for_health() -> None:
    limits = _limits(max_requests=1, max_client_share=100)
    first = _scope()
    limits.admit(first)
    with pytest.raises(Problem) as caught:
        limits.admit(_scope())
    assert caught.value.kind.status == 503
    limits.admit(_scope("/healthz/live"))
    limits.admit(_scope("/metrics"))
    limits.release(first)
    limits.release(first)
    limits.admit(_scope())
    assert limits.requests.taken == 1


def test_no_request_begins_while_all_bytes_are_held() -> None:
    limits = _limits(max_pending_bytes=2048)
    limits.memory.add("slow", 4096)
    with pytest.raises(Problem):
        limits.admit(_scope())
    limits.memory.give_back("slow", 4096)
    limits.admit(_scope())


def test_bodies_together_are_bounded_and_given_back() -> None:
    limits = _limits(max_pending_bytes=1024)
    first, second = _scope(), _scope()
    limits.hold(first, 300)
    limits.hold(first, 300)
    with pytest.raises(Problem) as caught:
        limits.hold(second, 600)
    assert caught.value.kind.status == 503
    limits.release(second)
    assert limits.memory.taken == 600
    limits.release(first)
    assert limits.memory.taken == 0


@pytest.mark.parametrize("chunks", [(b"x" * 1025,), (b"x" * 1000, b"x" * 25)])
def test_body_over_the_limit_is_refused(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(Problem) as caught:
        asyncio.run(_limits().read(_scope(), _receiving(*chunks)))
    assert caught.value.kind.status == 413


def test_connection_that_ends_early_is_no_body() -> None:
    with pytest.raises(ClientDisconnected):
        asyncio.run(_limits().read(_scope(), _receiving(b"123", whole=False)))


def test_body_that_is_still_coming_when_the_service_ends_is_refused_at_once() -> None:
    limits = _limits(receive_timeout_s=3600)

    async def scenario() -> Problem:
        receiving = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if receiving.is_set():
                await asyncio.Event().wait()
            receiving.set()
            return {"type": "http.request", "body": b"1", "more_body": True}

        read = asyncio.ensure_future(limits.read(_scope(), receive))
        await receiving.wait()
        limits.interrupt()
        with pytest.raises(Problem) as caught:
            await read
        return caught.value

    assert asyncio.run(scenario()).kind.name == "shutting-down"


def test_a_client_that_holds_nothing_is_not_remembered() -> None:
    limits = _limits()
    scope = _scope(client="10.0.0.9")
    limits.admit(scope)
    limits.release(scope)
    assert not limits.memory._by_client


def test_streams_count_when_they_are_admitted_and_until_their_end() -> None:
    limits = _limits(max_open_polls=10)
    scopes = [_scope() for _ in range(9)]
    for scope in scopes:
        limits.admit(scope)
    for scope in scopes[:8]:
        limits.hold_stream({**scope})  # as that of a HEAD request
    with pytest.raises(Problem) as over_share:
        limits.hold_stream(scopes[8])
    assert over_share.value.kind is CLIENT_OVER_SHARE
    for client in ("10.0.0.2", "10.0.0.3"):
        with limits.polls.holding(client):
            assert limits.polls.taken == 9
    for scope in scopes:
        limits.release(scope)
        limits.release(scope)
    assert limits.polls.taken == 0
