"""Refusals of the store, as clients of transactions see them."""

from __future__ import annotations

from typing import Final

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.errors import PutRefused, StorageError, UniqueKeyTaken

_OF_MESSAGES: Final = frozenset(
    {
        problems.BODY_TOO_LARGE,
        problems.MESSAGE_INVALID,
        problems.PROPERTY_INVALID,
        problems.TOPIC_INVALID,
    }
)
"""Refusals that are about the messages; all others are no fault of the producer."""


def refusal_of(error: StorageError) -> StorageError | Problem:
    """Return the error for the client; 503, to be retried, for a reason outside the messages."""
    if not isinstance(error, PutRefused) or isinstance(error, UniqueKeyTaken):
        return error
    problem = problems.from_storage(error)
    if problem is None or problem.kind in _OF_MESSAGES:
        return error
    return Problem(problems.STORE_NOT_WRITABLE, str(error), extra=problem.extra)
