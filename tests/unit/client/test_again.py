"""When a request is sent again, and when it says so."""

from __future__ import annotations

import pytest

from mqstore.client import ClientError, NewMessage, ProblemError, Unreachable
from mqstore.client.again import NAMES_MAX, REPEAT, Patience, Unsettled
from mqstore.client.calls import produce


def problem(kind: str, status: int = 503, retry_after_s: float | None = None) -> ProblemError:
    told = {"type": f"urn:mqstore:problem:{kind}"}
    return ProblemError(status, told, retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("broken off"),
        ClientError("an answer that is not understood"),
        problem("flush-timeout", 504),
        problem("store-failed"),
        problem("repeat-ambiguous"),
        problem("internal", 500),
        problem("about:blank", 502),
    ],
)
def test_what_may_have_been_stored_is_a_repeat_until_it_is_settled(failure: ClientError) -> None:
    unsettled = Unsettled()
    assert unsettled.headers(["a"]) == {}
    unsettled.failed(["a", "b"], failure)
    assert unsettled.headers(["c", "b"]) == REPEAT
    assert unsettled.headers(["c"]) == {}
    unsettled.settled(["a", "b", "c"])
    assert unsettled.headers(["a", "b"]) == {}


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("refused", was_sent=False),
        problem("writes-paused"),
        problem("disk-full", 507),
        problem("message-invalid", 422),
    ],
)
def test_what_was_not_stored_is_no_repeat(failure: ClientError) -> None:
    unsettled = Unsettled()
    unsettled.failed(["a"], failure)
    assert unsettled.headers(["a"]) == {}


def test_a_bounded_number_of_messages_is_remembered_the_latest() -> None:
    unsettled = Unsettled()
    for number in range(NAMES_MAX + 1):
        unsettled.failed([str(number)], Unreachable("x"))
    assert unsettled.headers(["0"]) == {}
    assert unsettled.headers(["1"]) == unsettled.headers([str(NAMES_MAX)]) == REPEAT


def test_patience_ends_and_a_final_answer_ends_it_at_once() -> None:
    now = [100.0]
    patience = Patience(10.0, lambda: now[0])
    assert 0.1 <= patience.pause_s(Unreachable("x")) < 0.2 <= patience.pause_s(Unreachable("x"))
    assert 5.0 <= patience.pause_s(problem("overloaded", retry_after_s=5.0)) < 7.0
    with pytest.raises(ProblemError):
        patience.pause_s(problem("unique-key-taken", 409))
    now[0] = 110.0
    with pytest.raises(Unreachable):
        patience.pause_s(Unreachable("x"))


def test_without_patience_nothing_is_sent_again() -> None:
    with pytest.raises(Unreachable):
        Patience(0.0).pause_s(Unreachable("x"))


def test_patience_needs_keys() -> None:
    messages = [NewMessage(uniq_key="k"), NewMessage()]
    with pytest.raises(ValueError, match="uniq_key"):
        produce("t", messages, patience_s=1.0)
    assert produce("t", messages[:1], patience_s=1.0).names == ["t k"]
