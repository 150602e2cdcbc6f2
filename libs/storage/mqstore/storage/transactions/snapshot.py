"""``TransactionSnapshot``: an immutable picture of a transaction, for callers."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from mqstore.storage.transactions.halves import Verdict
from mqstore.storage.transactions.table import Check, Transaction


class State(StrEnum):
    """The state of a transaction."""

    PENDING = "pending"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    SET_ASIDE = "set-aside"


_STATES: Final = {
    Verdict.COMMIT: State.COMMITTED,
    Verdict.ROLLBACK: State.ROLLED_BACK,
    Verdict.SET_ASIDE: State.SET_ASIDE,
}


class StoredHalf(msgspec.Struct, frozen=True, gc=False):
    """One copy of a half message: its offsets, and the number of checks before it."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    check_times: int
    op_offset: int | None
    """Queue offset of the op record that resolves it, or None."""


class TransactionSnapshot(msgspec.Struct, frozen=True):
    """Everything known of a transaction. Times are Unix milliseconds."""

    key: str
    state: State
    group: str
    messages: int
    born_ms: int
    check_times: int
    checks: tuple[Check, ...]
    """Sent by this process, newest last."""
    decided_at_ms: int | None
    why: str
    halves: tuple[StoredHalf, ...]


def state_of(transaction: Transaction) -> State:
    """The state of a transaction."""
    decision = transaction.decision
    return State.PENDING if decision is None else _STATES[decision.verdict]


def snapshot_of(transaction: Transaction) -> TransactionSnapshot:
    """The snapshot of a transaction."""
    decision, resolved = transaction.decision, transaction.resolved
    return TransactionSnapshot(
        key=transaction.key,
        state=state_of(transaction),
        group=transaction.group,
        messages=len(transaction.parts),
        born_ms=transaction.born_ms,
        check_times=transaction.check_times,
        checks=transaction.checks,
        decided_at_ms=None if decision is None else decision.at_ms,
        why="" if decision is None else decision.why,
        halves=tuple(
            StoredHalf(
                copy.uniq_key,
                copy.topic,
                copy.queue_id,
                copy.queue_offset,
                copy.physical_offset,
                copy.store_timestamp_ms,
                copy.check_times,
                resolved.get(copy.queue_offset),
            )
            for copy in transaction.copies
        ),
    )
