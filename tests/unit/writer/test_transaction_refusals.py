"""Refusals of a begin or a decision, as a client sees them."""

from __future__ import annotations

import pytest

from mqstore.service import problems
from mqstore.service.http import problem_of
from mqstore.service.problems import Problem, ProblemType
from mqstore.service.transaction_structs import NewHalf, TransactionSpec
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import (
    DiskFull,
    FlushTimeout,
    Lack,
    MessageInvalid,
    MessageTooLarge,
    PageCacheBusy,
    PropertiesTooLong,
    SegmentCreationFailed,
    StorageError,
    StoreFailed,
    StoreNotWritable,
    TopicTooLong,
    TransactionDecided,
    TransactionGone,
    TransactionsNotLoaded,
    TransactionUnknown,
    UniqueKeyTaken,
)
from mqstore.storage.puts import QueueTurns
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import TopicConfig
from mqstore.writer.transactions.refusals import refusal_of
from mqstore.writer.transactions.requests import PROPERTIES_SIZE_MAX, BeginRequests


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MessageTooLarge("why"), problems.BODY_TOO_LARGE),
        (PropertiesTooLong("why"), problems.PROPERTY_INVALID),
        (MessageInvalid("why"), problems.MESSAGE_INVALID),
        (TopicTooLong("why"), problems.TOPIC_INVALID),
        (UniqueKeyTaken("why"), problems.UNIQUE_KEY_TAKEN),
        (DiskFull("why"), problems.STORE_NOT_WRITABLE),
        (PageCacheBusy("why"), problems.STORE_NOT_WRITABLE),
        (SegmentCreationFailed("why", Lack.NO_ROOM), problems.STORE_NOT_WRITABLE),
        (StoreNotWritable("read-only", "why"), problems.STORE_NOT_WRITABLE),
        (FlushTimeout("why"), problems.FLUSH_TIMEOUT),
        (StoreFailed("why"), problems.STORE_FAILED),
        (TransactionsNotLoaded("why"), problems.COORDINATOR_NOT_READY),
        (TransactionUnknown("why"), problems.TRANSACTION_UNKNOWN),
        (TransactionGone("why"), problems.TRANSACTION_GONE),
    ],
    ids=lambda each: each.name if isinstance(each, ProblemType) else type(each).__name__,
)
def test_what_is_wrong_with_messages_is_named_and_all_else_may_be_repeated(
    error: StorageError, kind: ProblemType
) -> None:
    refusal = refusal_of(error)
    problem = refusal if isinstance(refusal, Problem) else problem_of(refusal)
    assert (problem.kind, problem.detail) == (kind, "why")
    assert kind.status != 503 or problem.headers["retry-after"]


def test_a_contrary_decision_is_answered_with_the_one_that_was_taken() -> None:
    problem = problem_of(TransactionDecided("why", "rollback", None, "by a broker", 0))
    assert problem.kind is problems.TRANSACTION_DECIDED
    assert problem.extra == {"decision": "rollback", "decidedAt": None, "why": "by a broker"}


TOPIC = TopicConfig("t", 1, 1)


def test_properties_that_leave_no_room_for_those_of_a_half_message_are_refused() -> None:
    requests = BeginRequests(UniqueKeys(production_seams()), QueueTurns())

    def begin(length: int) -> None:
        message = NewHalf(body="x", uniq_key="k", properties={"ä": "x" * length})
        requests.read(
            TransactionSpec(producer_group="g", topic="t", messages=[message]), TOPIC, "10.0.0.1:99"
        )

    room = PROPERTIES_SIZE_MAX - len("UNIQ_KEY k ") - len("ä  ".encode())
    begin(room)
    with pytest.raises(Problem) as caught:
        begin(room + 1)
    assert caught.value.kind is problems.PROPERTY_INVALID


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([NewHalf(body="x", queue_id=1)], problems.MESSAGE_INVALID),
        ([NewHalf()], problems.MESSAGE_INVALID),
        ([NewHalf(body="x", body_base64="eA==")], problems.BODY_INVALID),
        ([NewHalf(body_base64="x")], problems.BODY_INVALID),
        ([NewHalf(body=each, uniq_key="k") for each in "ab"], problems.BODY_INVALID),
    ],
)
def test_messages_that_cannot_be_stored_begin_nothing(
    messages: list[NewHalf], kind: ProblemType
) -> None:
    requests = BeginRequests(UniqueKeys(production_seams()), QueueTurns())
    with pytest.raises(Problem) as caught:
        requests.read(
            TransactionSpec(producer_group="g", topic="t", messages=messages), TOPIC, "10.0.0.1:99"
        )
    assert caught.value.kind is kind
