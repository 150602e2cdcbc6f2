"""What a coordinator's own words become in answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mqstore.coordinator import errors
from mqstore.coordinator.worker import Busy
from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.quick import Later

T = TypeVar("T")
_WRONG: Final = frozenset(
    {
        problems.BODY_TOO_LARGE,
        problems.MESSAGE_INVALID,
        problems.PROPERTY_INVALID,
        problems.TOPIC_INVALID,
    }
)
"""What store-writer finds wrong with messages; all else that it refuses is not the producer's."""


async def result_of(ask: Callable[[Any], asyncio.Future[T]], asked: Any) -> T:
    """Ask a worker, and wait. Raises Problem."""
    try:
        return await ask(asked)
    except errors.CoordinatorError as error:
        raise problem_of(error) from error


def later_of(
    ask: Callable[[Any], asyncio.Future[T]],
    asked: Any,
    answer: Callable[[asyncio.Future[T]], bytes],
) -> Later:
    """Ask a worker; ``answer`` takes what it told, and may raise what it told. Raises Problem."""

    def answered(told: asyncio.Future[T]) -> bytes:
        try:
            return answer(told)
        except errors.CoordinatorError as error:
            raise problem_of_sent(error) from error

    try:
        return Later(ask(asked), answered)
    except errors.CoordinatorError as error:
        raise problem_of_sent(error) from error


def problem_of(error: errors.CoordinatorError) -> Problem:
    """What a producer is told."""
    if isinstance(error, errors.Contradicted):
        extra = {"decision": error.decision, "decidedAt": error.decided_at_ms, "why": error.why}
        return Problem(problems.TRANSACTION_DECIDED, str(error), extra=extra)
    kinds = {
        errors.TransactionUnknown: problems.TRANSACTION_UNKNOWN,
        errors.TransactionGone: problems.TRANSACTION_GONE,
        errors.UniqueKeysTaken: problems.UNIQUE_KEY_TAKEN,
        errors.LogRefused: problems.STORE_NOT_WRITABLE,
        Busy: problems.OVERLOADED,
    }
    return Problem(kinds.get(type(error), problems.COORDINATOR_NOT_READY), str(error))


def problem_of_sent(error: errors.CoordinatorError) -> Problem:
    """As ``problem_of``, for who sent the messages: what is wrong with them is told as that."""
    if isinstance(error, errors.LogRefused):
        name = str(error.problem.get("type", "")).removeprefix(problems.TYPE_PREFIX)
        kind = problems.REGISTRY.get(name)
        if kind in _WRONG:
            return Problem(kind, str(error))
    return problem_of(error)
