"""Requests to the transaction coordinator, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from mqstore.client.models import NewMessage
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.operation import Nothing
from mqstore.wire.operations.checks import (
    PRODUCERS,
    REGISTER_PRODUCER,
    REMOVE_PRODUCER,
    TAKE_CHECKS,
)
from mqstore.wire.operations.transactions import (
    BEGIN,
    COMMIT,
    RESOLVE,
    ROLLBACK,
    TRANSACTION,
    TRANSACTIONS,
)
from mqstore.wire.transactions import (
    BegunTransaction,
    Checks,
    NewHalf,
    Producer,
    Producers,
    Transaction,
    Transactions,
    TransactionState,
)

_OF_HALVES: Final = frozenset(each.alias or name for name, each in NewHalf.model_fields.items())


def begin(
    producer_group: str,
    topic: str,
    messages: NewMessage | Sequence[NewMessage],
    *,
    check_immunity_s: int | None = None,
    shard: int | None = None,
) -> Call[BegunTransaction]:
    """Store a message or several that no consumer receives before the commit. Give ``uniq_key``s,
    so that it may be sent again when no reply came. Raises ValueError for a delay level: these have
    none."""
    if isinstance(messages, NewMessage):
        messages = [messages]
    if any(each.delay_level for each in messages):
        raise ValueError("messages of a transaction cannot be delayed")
    halves = [
        {name: value for name, value in each.as_json().items() if name in _OF_HALVES}
        for each in messages
    ]
    body = document(
        BEGIN,
        producer_group=producer_group,
        topic=topic,
        messages=halves,
        check_immunity_seconds=check_immunity_s,
        shard=shard,
    )
    return call(BEGIN, json=body)


def commit_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Make its messages visible; they can be read when this is answered. May be sent again."""
    return call(COMMIT, at={"id": transaction_id}, json={"reason": reason})


def rollback_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Have no consumer ever receive its messages. May be sent again."""
    return call(ROLLBACK, at={"id": transaction_id}, json={"reason": reason})


def resolve_transaction(
    transaction_id: str, decision: Literal["commit", "rollback"], reason: str
) -> Call[Transaction]:
    """Decide by hand, also what was set aside; role admin."""
    return call(
        RESOLVE,
        at={"id": transaction_id},
        json={"decision": decision, "reason": reason},
    )


def transaction(transaction_id: str) -> Call[Transaction]:
    """One transaction's whole story."""
    return call(TRANSACTION, at={"id": transaction_id})


def transactions(
    *,
    state: TransactionState | None = None,
    group: str | None = None,
    older_than_s: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Transactions]:
    """Oldest first; without a state those that are pending or set aside."""
    params = given(state=state, group=group, olderThan=older_than_s, limit=limit, cursor=cursor)
    return call(TRANSACTIONS, params=params)


def take_checks(
    producer_group: str, *, max_checks: int | None = None, wait_s: float = 0.0
) -> Call[Checks]:
    """Transactions of a group that wait for an answer; waits up to ``wait_s`` for one."""
    body = document(TAKE_CHECKS, producer_group=producer_group, max=max_checks, wait=wait_s)
    return call(TAKE_CHECKS, json=body, wait_s=wait_s)


def register_producer(
    group: str, name: str, url: str, secret: str, *, lease_s: int | None = None
) -> Call[Producer]:
    """Be called back about the group's transactions; again before the lease is over. See
    ``mqstore.client.callbacks``."""
    body = document(REGISTER_PRODUCER, url=url, secret=secret, lease_seconds=lease_s)
    return call(REGISTER_PRODUCER, at={"group": group, "name": name}, json=body)


def remove_producer(group: str, name: str) -> Call[Nothing]:
    """Be called back no more."""
    return call(REMOVE_PRODUCER, at={"group": group, "name": name})


def producers(group: str | None = None) -> Call[Producers]:
    """Producers that are called back; role admin."""
    params = given(group=group)
    return call(PRODUCERS, params=params)
