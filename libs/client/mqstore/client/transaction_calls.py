"""Requests to the transaction coordinator, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

from mqstore.client.calls import Call, Target, given
from mqstore.client.models import NewMessage, Nothing
from mqstore.client.transaction_models import (
    Begun,
    Checks,
    Producer,
    Producers,
    Transaction,
    Transactions,
    TransactionState,
)

_TRANSACTIONS: Final = "/v1/transactions"
_NOT_OF_HALVES: Final = frozenset({"crc32c", "delayLevel"})


def begin(
    producer_group: str,
    topic: str,
    messages: Sequence[NewMessage],
    *,
    check_immunity_s: int | None = None,
    shard: int | None = None,
) -> Call[Begun]:
    """Store messages that nobody sees before the commit. Give ``uniq_key``s, so that it may be sent
    again when no answer came. Raises ValueError for a delay level: these have none."""
    if any(each.delay_level for each in messages):
        raise ValueError("messages of a transaction cannot be delayed")
    body: dict[str, Any] = {
        "producerGroup": producer_group,
        "topic": topic,
        "messages": [
            {name: value for name, value in each.as_json().items() if name not in _NOT_OF_HALVES}
            for each in messages
        ],
    } | given(checkImmunitySeconds=check_immunity_s, shard=shard)
    return Call(Target.COORDINATOR, "POST", _TRANSACTIONS, Begun, json=body)


def commit_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Make its messages visible; they can be read when this is answered. May be sent again."""
    return _decision(transaction_id, "commit", {"reason": reason})


def rollback_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Let nobody ever see its messages. May be sent again."""
    return _decision(transaction_id, "rollback", {"reason": reason})


def resolve_transaction(
    transaction_id: str, decision: Literal["commit", "rollback"], reason: str
) -> Call[Transaction]:
    """Decide by hand, also what was set aside; role admin."""
    return _decision(transaction_id, "resolve", {"decision": decision, "reason": reason})


def transaction(transaction_id: str) -> Call[Transaction]:
    """One transaction's whole story."""
    return Call(Target.COORDINATOR, "GET", _one(transaction_id), Transaction)


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
    return Call(Target.COORDINATOR, "GET", _TRANSACTIONS, Transactions, params=params)


def take_checks(
    producer_group: str, *, max_checks: int | None = None, wait_s: float = 0.0
) -> Call[Checks]:
    """Transactions of a group that wait for an answer; waits up to ``wait_s`` for one."""
    body = {"producerGroup": producer_group, "wait": wait_s} | given(max=max_checks)
    path = "/v1/checks"
    return Call(Target.COORDINATOR, "POST", path, Checks, json=body, wait_s=wait_s)


def register_producer(
    group: str, name: str, url: str, secret: str, *, lease_s: int | None = None
) -> Call[Producer]:
    """Be called back about the group's transactions; again before the lease is over. See
    ``mqstore.client.callbacks``."""
    body = {"url": url, "secret": secret} | given(leaseSeconds=lease_s)
    return Call(Target.COORDINATOR, "PUT", _producer(group, name), Producer, json=body)


def remove_producer(group: str, name: str) -> Call[Nothing]:
    """Be called back no more."""
    return Call(Target.COORDINATOR, "DELETE", _producer(group, name), Nothing)


def producers(group: str | None = None) -> Call[Producers]:
    """Who is called back; role admin."""
    params = given(group=group)
    return Call(Target.COORDINATOR, "GET", "/v1/producers", Producers, params=params)


def _decision(transaction_id: str, how: str, body: dict[str, str]) -> Call[Transaction]:
    path = f"{_one(transaction_id)}:{how}"
    return Call(Target.COORDINATOR, "POST", path, Transaction, json=body)


def _one(transaction_id: str) -> str:
    return f"{_TRANSACTIONS}/{quote(transaction_id, safe='')}"


def _producer(group: str, name: str) -> str:
    return f"/v1/producers/{quote(group, safe='')}/{quote(name, safe='')}"
