"""What can go wrong with transactions.

::

    CoordinatorError
    ├── LogUnavailable       the store did not answer: what was asked may have been done
    │   ├── Fenced           another coordinator took over
    │   └── Reopened         the store was opened again since
    ├── LogRefused           the store refused; nothing was stored
    │   └── KeysKnown        a key that was to be absent has a record, or that is not known
    ├── NotLoaded            what is pending is not known (again) yet
    ├── TransactionUnknown   no such transaction
    ├── TransactionGone      its half message cannot be read any more
    ├── Contradicted         it was decided otherwise
    └── UniqueKeysTaken      another transaction was begun under the same unique keys
"""

from __future__ import annotations

from typing import Any


class CoordinatorError(Exception):
    """Base of all errors of this package."""


class LogUnavailable(CoordinatorError):
    """The store did not answer, or not clearly: what was asked may have been done."""


class Fenced(LogUnavailable):
    """The store takes a higher epoch's word only: this coordinator leads no more."""


class Reopened(LogUnavailable):
    """The store was opened again since it was read: a power cut may have taken its log's end."""


class LogRefused(CoordinatorError):
    """The store refused an append; nothing was stored. ``problem`` is what it answered."""

    def __init__(self, message: str, problem: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.problem = problem or {}


class KeysKnown(LogRefused):
    """A record has one of the ``absent`` keys of an append, or the index does not cover the log:
    read the log, then append without the condition."""


class NotLoaded(CoordinatorError):
    """The half and op queues are still being read."""


class TransactionUnknown(CoordinatorError):
    """There is no half message of such a transaction."""


class TransactionGone(CoordinatorError):
    """A half message is damaged, or retention deleted it: it can only be rolled back."""


class UniqueKeysTaken(CoordinatorError):
    """Another transaction was begun under the same unique keys; nothing was stored."""


class Contradicted(CoordinatorError):
    """The transaction was decided otherwise before."""

    def __init__(self, message: str, decision: str, decided_at_ms: int | None, why: str) -> None:
        super().__init__(message)
        self.decision = decision
        self.decided_at_ms = decided_at_ms
        self.why = why
