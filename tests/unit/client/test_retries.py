"""When a request is sent again, and under which keys."""

from __future__ import annotations

import asyncio
import math
import os
from typing import Any

import httpx
import pytest

from mqstore.client import (
    AsyncClient,
    Client,
    ClientError,
    NewMessage,
    ProblemError,
    Unreachable,
)
from mqstore.client.consumer_calls import acknowledge
from mqstore.client.group_calls import delete_group
from mqstore.client.produce_calls import produce
from mqstore.client.requests import Call
from mqstore.client.retries import RetryBudget, may_be_stored, writable_shard
from mqstore.client.topic_calls import topics
from mqstore.wire import unique_keys
from mqstore.wire.operation import all_operations


def problem(kind: str, status: int = 503, retry_after_s: float | None = None) -> ProblemError:
    members = {"type": f"urn:mqstore:problem:{kind}"}
    return ProblemError(status, members, retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("broken off"),
        ClientError("an answer that is not understood"),
        problem("flush-timeout", 504),
        problem("store-failed"),
        problem("shard-unreachable"),
        problem("internal", 500),
        problem("about:blank", 502),
    ],
)
def test_messages_may_be_stored(failure: ClientError) -> None:
    assert may_be_stored(failure)


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("refused", was_sent=False),
        problem("writes-paused"),
        problem("disk-full", 507),
        problem("message-invalid", 422),
        ProblemError(503, {"type": "urn:mqstore:problem:shard-unreachable", "sent": False}),
    ],
)
def test_messages_are_not_stored(failure: ClientError) -> None:
    assert not may_be_stored(failure)


def test_patience_ends_and_a_final_answer_ends_it_at_once() -> None:
    now = [100.0]
    patience = RetryBudget(10.0, lambda: now[0])
    assert 0.1 <= patience.pause_s(Unreachable("x")) < 0.2 <= patience.pause_s(Unreachable("x"))
    assert 5.0 <= patience.pause_s(problem("overloaded", retry_after_s=5.0)) < 7.0
    with pytest.raises(ProblemError):
        patience.pause_s(problem("unique-key-taken", 409))
    now[0] = 110.0
    with pytest.raises(Unreachable):
        patience.pause_s(Unreachable("x"))


def test_a_long_outage_has_pauses_of_two_seconds_or_what_the_service_requests() -> None:
    retries = RetryBudget(math.inf)
    pauses = [retries.pause_s(Unreachable("down")) for _ in range(3_000)]
    assert all(2.0 <= each <= 2.5 for each in pauses[10:])
    assert 20.0 <= retries.pause_s(problem("overloaded", retry_after_s=20.0)) <= 25.0
    assert 30.0 <= retries.pause_s(problem("overloaded", retry_after_s=1e9)) <= 37.5


class Service:
    """A service that fails as a test says, then replies."""

    def __init__(self, *failures: httpx.Response | httpx.TransportError) -> None:
        self.failures = list(failures)
        self.requests = 0

    def reply(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if not self.failures:
            return httpx.Response(200, json={"topics": [], "group": "g", "results": []})
        failure = self.failures.pop(0)
        if isinstance(failure, httpx.TransportError):
            raise failure
        return failure


BROKEN = httpx.ReadError("broken off")
REFUSED = httpx.ConnectError("refused")


def refusal(kind: str, status: int) -> httpx.Response:
    members = {"type": f"urn:mqstore:problem:{kind}", "status": status}
    return httpx.Response(status, json=members, headers={"retry-after": "0"})


def send(kind: str, service: Service, patience_s: float, build: Call[Any]) -> object:
    """Send a call by one of the two clients."""
    transport = httpx.MockTransport(service.reply)
    if kind == "blocking":
        with Client(patience_s=patience_s) as client:
            client._http_by_process[os.getpid()] = httpx.Client(transport=transport)
            return client.send(build)

    async def work() -> object:
        async with AsyncClient(patience_s=patience_s) as client:
            client._http_by_process[os.getpid()] = httpx.AsyncClient(transport=transport)
            return await client.send(build)

    return asyncio.run(work())


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
@pytest.mark.parametrize("build", [topics(), acknowledge("g", "r"), delete_group("g")])
def test_each_call_that_may_be_repeated_is_retried_for_the_patience_of_the_client(
    kind: str, build: Call[Any]
) -> None:
    service = Service(REFUSED, BROKEN, refusal("shard-unreachable", 502))
    send(kind, service, 60.0, build)
    assert service.requests == 4
    service = Service(BROKEN)
    with pytest.raises(Unreachable):
        send(kind, service, 0.0, build)
    service = Service(refusal("group-unknown", 404))
    with pytest.raises(ProblemError):
        send(kind, service, 60.0, build)
    assert service.requests == 1


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_other_calls_are_retried_only_where_nothing_was_done(kind: str) -> None:
    service = Service(REFUSED, refusal("overloaded", 503), refusal("writes-paused", 503), BROKEN)
    with pytest.raises(Unreachable):
        send(kind, service, 60.0, produce("t", NewMessage(body="once")))
    assert service.requests == 4


def test_operations_say_which_posts_may_be_repeated() -> None:
    repeated = {each.name for each in all_operations() if each.method == "POST" and each.idempotent}
    assert repeated == {
        *("acknowledge", "give_back", "extend", "resend_dead_letters", "purge_dead_letters"),
        *("messages_by_id", "offsets_by_time", "promote"),
        *(
            "reset_offsets",
            "run_retention",
            "flush",
            "release_keys",
            "commit_transaction",
            "rollback_transaction",
        ),
    }


def test_without_patience_nothing_is_sent_again() -> None:
    with pytest.raises(Unreachable):
        RetryBudget(0.0).pause_s(Unreachable("x"))


def test_patience_generates_the_keys_that_are_missing() -> None:
    call = produce("t", [NewMessage(), NewMessage()], patience_s=1.0)
    assert call.with_keys is not None
    for shard in (None, 0, 7):
        for each in (call.with_keys(shard).json or {})["messages"]:
            assert unique_keys.shard_of(each["uniqKey"]) == shard
    assert produce("t", [NewMessage(uniq_key="k")], patience_s=1.0).with_keys is None
    assert produce("t", NewMessage()).with_keys is None


@pytest.mark.parametrize("other", [NewMessage(uniq_key="k"), NewMessage(ordering_key="o")])
def test_keys_of_a_request_that_several_shards_may_store_are_generated_once(
    other: NewMessage,
) -> None:
    call = produce("t", [other, NewMessage()], patience_s=1.0)
    assert call.with_keys is None
    first, second = (call.json or {})["messages"]
    assert first["uniqKey"] == "k" or "orderingKey" in first
    assert first["uniqKey"] != second["uniqKey"]


def test_a_problem_names_a_shard_that_takes_messages() -> None:
    members = {"type": "urn:mqstore:problem:shard-unreachable", "writable": {"shard": 3}}
    assert writable_shard(ProblemError(503, members)) == 3
    assert writable_shard(problem("overloaded")) is None
    assert writable_shard(Unreachable("x")) is None
