"""When a request is sent again, and under which keys."""

from __future__ import annotations

import pytest

from mqstore.client import ClientError, NewMessage, ProblemError, Unreachable
from mqstore.client.calls import produce
from mqstore.client.retries import RetryBudget, may_be_stored, writable_shard
from mqstore.wire import unique_keys


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
