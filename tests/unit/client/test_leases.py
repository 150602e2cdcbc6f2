"""Leases of one consumer, by a clock that the tests move."""

from __future__ import annotations

import pytest

from mqstore.client.leases import Leases, Outcome, Release, Settlement
from mqstore.wire.consumers import LeasedMessage, ReceiptResult, ReceiptResults, ReceiptStatus
from mqstore.wire.examples.consumers import RECEIVED
from mqstore.wire.limits import COUNT_MAX

LEASE_S = 60.0
HANDLE_MAX_S = 200.0
MESSAGE = LeasedMessage.model_validate(RECEIVED["messages"][0])


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock) -> Leases:
    return Leases(LEASE_S, HANDLE_MAX_S, clock)


def messages(*receipts: str) -> list[LeasedMessage]:
    return [MESSAGE.model_copy(update={"receipt": each}) for each in receipts]


def reply(**statuses: ReceiptStatus) -> ReceiptResults:
    results = [ReceiptResult(receipt=name, status=status) for name, status in statuses.items()]
    return ReceiptResults(group="g", results=tuple(results))


def test_a_lease_is_renewed_when_half_of_it_has_passed(leases: Leases, clock: Clock) -> None:
    leases.add(messages("a", "b"))
    assert leases.wait_s() == LEASE_S / 2
    assert leases.take() == []

    clock.now += LEASE_S / 2
    assert leases.wait_s() == 0
    assert leases.take() == [Settlement(None, ("a", "b"))]
    assert leases.wait_s() == LEASE_S / 2


def test_a_message_is_held_for_a_bounded_time(leases: Leases, clock: Clock) -> None:
    leases.add(messages("a"))
    renewals = 0
    while "a" in leases:
        clock.now += LEASE_S / 2
        renewals += len(leases.take())

    assert renewals == HANDLE_MAX_S // (LEASE_S / 2)
    assert leases.wait_s() is None
    assert not leases.settle("a", Outcome()), "it goes to another consumer"


def test_messages_with_one_outcome_are_one_request(leases: Leases) -> None:
    leases.add(messages("a", "b", "c", "d"))
    for receipt, outcome in {"a": Outcome(), "b": Outcome(3, "busy"), "c": Outcome()}.items():
        assert leases.settle(receipt, outcome)

    assert leases.take() == [
        Settlement(Outcome(), ("a", "c")),
        Settlement(Outcome(3, "busy"), ("b",)),
    ]
    assert "d" in leases
    assert not leases.due


def test_what_is_due_is_counted(leases: Leases) -> None:
    leases.add(messages("a", "b", "c"))
    for receipt in "aab":
        leases.settle(receipt, Outcome())
    assert leases.due == 2
    (sent,) = leases.take()
    assert leases.due == 0
    leases.repeat(sent.what, sent.receipts)
    assert leases.due == 2


def test_the_first_outcome_counts(leases: Leases) -> None:
    leases.add(messages("a"))
    assert leases.settle("a", Outcome())
    assert not leases.settle("a", Outcome(0))
    assert leases.take() == [Settlement(Outcome(), ("a",))]


def test_a_request_has_no_more_receipts_than_the_service_takes(leases: Leases) -> None:
    names = [str(number) for number in range(COUNT_MAX + 1)]
    leases.add(messages(*names))
    for each in names:
        leases.settle(each, Outcome())

    assert [len(each.receipts) for each in leases.take()] == [COUNT_MAX, 1]


def test_what_failed_is_due_again(leases: Leases, clock: Clock) -> None:
    leases.add(messages("a", "b"))
    leases.settle("a", Outcome())
    clock.now += LEASE_S / 2
    failed = leases.take()
    for each in failed:
        leases.repeat(each.what, each.receipts)

    assert leases.take() == failed == [Settlement(Outcome(), ("a",)), Settlement(None, ("b",))]


def test_receipts_of_a_shard_that_is_down_are_due_again(leases: Leases) -> None:
    leases.add(messages("a", "b"))
    for each in ("a", "b"):
        leases.settle(each, Outcome())
    (sent,) = leases.take()

    counts = leases.note(sent, reply(a=ReceiptStatus.OK, b=ReceiptStatus.UNREACHABLE))
    assert counts == (0, 1)
    assert leases.take() == [Settlement(Outcome(), ("b",))]


def test_a_message_whose_lease_was_lost_is_held_no_more(leases: Leases, clock: Clock) -> None:
    leases.add(messages("a", "b", "c"))
    clock.now += LEASE_S / 2
    (sent,) = leases.take()

    counts = leases.note(
        sent, reply(a=ReceiptStatus.OK, b=ReceiptStatus.LOST, c=ReceiptStatus.UNKNOWN)
    )
    assert counts == (2, 0)
    assert [each in leases for each in ("a", "b", "c")] == [True, False, False]


def test_at_the_end_all_that_is_held_is_released(leases: Leases) -> None:
    leases.add(messages("a", "b"))
    leases.settle("a", Outcome())
    leases.release_all()

    assert leases.take() == [Settlement(Outcome(), ("a",)), Settlement(Release(), ("b",))]
    assert len(leases) == 0


@pytest.mark.parametrize(
    ("what", "end"),
    [
        (None, {"invisibleS": LEASE_S}),
        (Release(), {"invisibleS": 0.0}),
        (Outcome(), {}),
        (Outcome(0, "busy"), {"delayLevel": 0, "reason": "busy"}),
        (Outcome(-1), {"delayLevel": -1, "reason": ""}),
    ],
)
def test_each_outcome_is_a_request(what: Outcome | Release | None, end: dict[str, object]) -> None:
    call = Settlement(what, ("a", "b")).call("g", LEASE_S)
    assert call.json == {"receipts": ["a", "b"], **end}
