"""What a refusal of store-writer means for the log, and what a producer is told of it."""

from __future__ import annotations

import pytest

from mqstore.client import ProblemError, Topic
from mqstore.coordinator.answers import problem_of, problem_of_sent
from mqstore.coordinator.begin_requests import PROPERTIES_SIZE_MAX, BeginRequests
from mqstore.coordinator.errors import CoordinatorError, Fenced, LogRefused, LogUnavailable
from mqstore.coordinator.http_log import _error_of
from mqstore.coordinator.models import NewMessage, TransactionSpec
from mqstore.service import problems
from mqstore.service.problems import Problem, ProblemType
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.system.threads import production_seams


@pytest.mark.parametrize(
    ("kind", "error", "told"),
    [
        (problems.BODY_TOO_LARGE, LogRefused, problems.BODY_TOO_LARGE),
        (problems.PROPERTY_INVALID, LogRefused, problems.PROPERTY_INVALID),
        (problems.MESSAGE_INVALID, LogRefused, problems.MESSAGE_INVALID),
        (problems.TOPIC_INVALID, LogRefused, problems.TOPIC_INVALID),
        (problems.FORBIDDEN, LogRefused, problems.STORE_NOT_WRITABLE),
        (problems.CLIENT_OVER_SHARE, LogRefused, problems.STORE_NOT_WRITABLE),
        (problems.DISK_FULL, LogRefused, problems.STORE_NOT_WRITABLE),
        (problems.PAGE_CACHE_BUSY, LogRefused, problems.STORE_NOT_WRITABLE),
        (problems.STORE_READ_ONLY, LogRefused, problems.STORE_NOT_WRITABLE),
        (problems.FLUSH_TIMEOUT, LogUnavailable, problems.COORDINATOR_NOT_READY),
        (problems.STORE_FAILED, LogUnavailable, problems.COORDINATOR_NOT_READY),
        (problems.SHUTTING_DOWN, LogUnavailable, problems.COORDINATOR_NOT_READY),
        (problems.FENCE_UNKNOWN, LogUnavailable, problems.COORDINATOR_NOT_READY),
        (problems.FENCED_OFF, Fenced, problems.COORDINATOR_NOT_READY),
    ],
    ids=lambda each: each.name if isinstance(each, ProblemType) else "",
)
def test_only_what_is_surely_not_stored_is_refused_and_what_is_wrong_with_it_told(
    kind: ProblemType, error: type[CoordinatorError], told: ProblemType
) -> None:
    answer = {"type": kind.urn, "status": kind.status, "detail": "why"}
    found = _error_of(ProblemError(kind.status, answer))
    assert type(found) is error
    problem = problem_of_sent(found)
    assert (problem.kind, problem.detail) == (told, str(found))
    assert problem_of(found).kind.status == 503


def test_properties_that_leave_no_room_for_those_of_a_half_message_are_refused() -> None:
    requests = BeginRequests(UniqueKeys(production_seams()))
    topic = Topic(topic="t", read_queues=1, write_queues=1, queues=1, perm=6, order=False)

    def begin(length: int) -> None:
        message = NewMessage(body="x", uniq_key="k", properties={"ä": "x" * length})
        requests.asked(TransactionSpec("g", "t", [message]), topic, "10.0.0.1:99")

    room = PROPERTIES_SIZE_MAX - len("UNIQ_KEY k ") - len("ä  ".encode())
    begin(room)
    with pytest.raises(Problem) as caught:
        begin(room + 1)
    assert caught.value.kind is problems.PROPERTY_INVALID
