"""Requests to the transaction coordinator, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.produce_calls import keyed
from mqstore.client.requests import Call, call, document, given
from mqstore.wire.operation import Nothing

if TYPE_CHECKING:
    from mqstore.client.new_message import NewMessage
    from mqstore.wire.checks import Checks, RegisteredProducer, RegisteredProducers
    from mqstore.wire.transactions import (
        BegunTransaction,
        Transaction,
        Transactions,
        TransactionState,
    )


def begin(
    producer_group: str,
    topic: str,
    messages: NewMessage | Sequence[NewMessage],
    *,
    check_immunity_s: int | None = None,
    shard: int | None = None,
    patience_s: float = 0.0,
) -> Call[BegunTransaction]:
    """Begin a transaction: store messages that no consumer receives before the commit.

    With a ``uniq_key`` for each message, the call may be retried after a lost reply. With
    ``patience_s`` the client retries for so many seconds, and generates missing keys. Raises
    ValueError for a message with a delay level or an ordering key.
    """
    if not isinstance(messages, Sequence):
        messages = [messages]
    if any(each.delay_level or each.delay_s or each.deliver_at for each in messages):
        raise ValueError("messages of a transaction cannot be delayed")
    if any(each.ordering_key is not None for each in messages):
        raise ValueError("messages of a transaction have no ordering key; give queue_id instead")
    with_keys: Callable[[int | None], Call[BegunTransaction]] | None = None
    if patience_s and not all(each.uniq_key for each in messages):
        unkeyed = messages

        def with_keys(named: int | None) -> Call[BegunTransaction]:
            """Build the call with keys of the shard ``named``."""
            return begin(
                producer_group,
                topic,
                keyed(unkeyed, named),
                check_immunity_s=check_immunity_s,
                shard=shard,
                patience_s=patience_s,
            )

    known = {each.alias for each in contract.transactions.NewHalf.model_fields.values()}
    halves = [
        {name: value for name, value in each.as_json().items() if name in known}
        for each in messages
    ]
    body = document(
        contract.transactions.BEGIN,
        producer_group=producer_group,
        topic=topic,
        messages=halves,
        check_immunity_seconds=check_immunity_s,
        shard=shard,
    )
    return call(contract.transactions.BEGIN, json=body, patience_s=patience_s, with_keys=with_keys)


def commit_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Commit a transaction: its messages are visible when this returns. May be retried."""
    return call(contract.transactions.COMMIT, at={"id": transaction_id}, json={"reason": reason})


def rollback_transaction(transaction_id: str, *, reason: str = "") -> Call[Transaction]:
    """Roll a transaction back: no consumer receives its messages. May be retried."""
    return call(contract.transactions.ROLLBACK, at={"id": transaction_id}, json={"reason": reason})


def resolve_transaction(
    transaction_id: str, decision: Literal["commit", "rollback"], reason: str
) -> Call[Transaction]:
    """Decide a transaction by hand, one that was set aside too. Needs the role admin."""
    return call(
        contract.transactions.RESOLVE,
        at={"id": transaction_id},
        json={"decision": decision, "reason": reason},
    )


def transaction(transaction_id: str) -> Call[Transaction]:
    """Return a transaction with its history."""
    return call(contract.transactions.TRANSACTION, at={"id": transaction_id})


def transactions(
    *,
    state: TransactionState | None = None,
    group: str | None = None,
    older_than_s: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Transactions]:
    """List transactions, oldest first; without a state, the pending and set-aside ones."""
    params = given(state=state, group=group, older_than=older_than_s, limit=limit, cursor=cursor)
    return call(contract.transactions.TRANSACTIONS, params=params)


def take_checks(
    producer_group: str, *, max_checks: int | None = None, wait_s: float = 0.0
) -> Call[Checks]:
    """Take due checks: transactions of a group that wait for a decision of their producer.

    Waits up to ``wait_s`` seconds for the first one.
    """
    body = document(
        contract.checks.TAKE_CHECKS, producer_group=producer_group, max=max_checks, wait=wait_s
    )
    return call(contract.checks.TAKE_CHECKS, json=body, wait_s=wait_s)


def register_producer(
    group: str, name: str, url: str, secret: str, *, lease_s: int | None = None
) -> Call[RegisteredProducer]:
    """Register a producer to be called back about its group's transactions.

    Renew it under the same secret before ``lease_s`` is over. ``mqstore.client.callbacks`` checks
    the signatures.
    """
    body = document(
        contract.checks.REGISTER_PRODUCER, url=url, secret=secret, lease_seconds=lease_s
    )
    return call(contract.checks.REGISTER_PRODUCER, at={"group": group, "name": name}, json=body)


def remove_producer(group: str, name: str, secret: str | None = None) -> Call[Nothing]:
    """Remove a producer: it is no longer called back. Needs the ``secret`` of its registration, or
    the role admin."""
    headers = {} if secret is None else {contract.checks.SECRET_HEADER: secret}
    return call(contract.checks.REMOVE_PRODUCER, at={"group": group, "name": name}, headers=headers)


def producers(
    group: str | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Call[RegisteredProducers]:
    """List the producers that are called back, up to 1,000 at once. Needs the role admin."""
    params = given(group=group, limit=limit, cursor=cursor)
    return call(contract.checks.PRODUCERS, params=params)


class TransactionCalls:
    """Methods of both clients."""

    begin = sends(begin)
    commit_transaction = sends(commit_transaction)
    rollback_transaction = sends(rollback_transaction)
    resolve_transaction = sends(resolve_transaction)
    transaction = sends(transaction)
    transactions = sends(transactions)
    take_checks = sends(take_checks)
    register_producer = sends(register_producer)
    remove_producer = sends(remove_producer)
    producers = sends(producers)
