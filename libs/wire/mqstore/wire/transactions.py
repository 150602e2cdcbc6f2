"""Transactions: begin, decision and views.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Reply, StrictRequest
from mqstore.wire.examples import transactions as examples
from mqstore.wire.idempotency import parameter
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import Parameters
from mqstore.wire.produce import Content

MESSAGES_MAX: Final = 100
"""Messages of a transaction, ..."""
KEYS_MAX: Final = 100
"""... keys of each, ..."""
PROPERTIES_MAX: Final = 100
"""... and properties."""
WHY_LENGTH_MAX: Final = 1_000
ID_LENGTH_MAX: Final = 300
ID_TEXT: Final = "As in the reply to begin; or `SHARD-` and the UNIQ_KEY of a broker's producer."

TransactionState = Literal["pending", "committed", "rolled-back", "set-aside"]
Decision = Literal["commit", "rollback"]
Group = Annotated[str, Field(min_length=1, max_length=120)]


class NewHalf(Content, title="NewHalfMessage"):
    """A message that the commit makes visible. It has ``body`` or ``bodyBase64``, not empty."""

    keys: Annotated[list[str], Field(max_length=KEYS_MAX)] = []
    properties: Annotated[dict[str, str], Field(max_length=PROPERTIES_MAX)] = {}
    uniq_key: (
        Annotated[
            str,
            Field(
                min_length=1, max_length=255, pattern="^[^/]+$", description="Part of paths: no /."
            ),
        ]
        | None
    ) = None


class TransactionSpec(StrictRequest):
    """A transaction to begin."""

    producer_group: Group
    topic: str
    messages: Annotated[list[NewHalf], Field(min_length=1, max_length=MESSAGES_MAX)]
    check_immunity_seconds: (
        Annotated[int, Field(ge=0, le=86_400, description="Before the first check; default 6.")]
        | None
    ) = None
    shard: (
        Annotated[
            int,
            Field(
                ge=0,
                description="Default: the shard that the first message's `uniqKey` names; without "
                "a key any shard.",
            ),
        ]
        | None
    ) = None


class Reason(StrictRequest):
    """The reason of a decision, which is kept in the op record."""

    reason: Annotated[str, Field(max_length=WHY_LENGTH_MAX)] = ""


class Resolution(StrictRequest):
    """An operator's decision, also about a transaction that was set aside."""

    decision: Decision
    reason: Annotated[str, Field(min_length=1, max_length=WHY_LENGTH_MAX)]


class BegunTransaction(Reply, title="Begun"):
    """A transaction that was begun, now or by an earlier attempt."""

    transaction_id: str
    state: TransactionState


class Check(Reply, title="CheckView"):
    """A check that was sent: to a registered producer, or to one that polls (`poll`)."""

    at: int
    by: str
    answer: Annotated[str | None, Field(description="The immediate answer: a decision, or none.")]


class HalfCopy(Reply):
    """One copy of a half message: its place, and the number of its checks."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    check_times: int
    op_offset: Annotated[int | None, Field(description="Of the op record that resolves it.")]


class Transaction(Reply, title="TransactionView"):
    """A transaction with its history."""

    transaction_id: str
    shard: int
    state: TransactionState
    producer_group: str
    messages: int
    born_timestamp: int
    checks_sent: int
    checks: Annotated[
        tuple[Check, ...], Field(description="Sent since the store was opened, newest last.")
    ]
    decided_at: int | None
    why: str
    halves: tuple[HalfCopy, ...]


class Transactions(Reply, title="TransactionList"):
    """Transactions, oldest first."""

    transactions: tuple[Transaction, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    complete: Annotated[bool, Field(description="Whether every shard answered.")]
    missing: Annotated[tuple[int, ...], Field(description="Shards that did not.")]


class TransactionsParameters(Parameters):
    """The filter and the page of a list of transactions."""

    state: Annotated[
        TransactionState | None, Field(description="Default: pending and set-aside.")
    ] = None
    group: Annotated[str | None, Field(max_length=255, description="Producer group.")] = None
    older_than: Annotated[int, Field(ge=0, le=2**31, description="Minimum age in seconds.")] = 0
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[
        str | None, Field(max_length=4_000, description="`next` of the previous reply.")
    ] = None


_BASE: Final = "/v1/transactions"
_BOTH: Final = (Target.COORDINATOR, Target.WRITER)
_NOT_NOW: Final = (
    problems.OVERLOADED,
    problems.COORDINATOR_NOT_READY,
    problems.STORE_NOT_WRITABLE,
)
_CHANGING: Final = (
    *_NOT_NOW,
    *problems.READ_ONLY_KINDS,
    problems.IN_SYNC_REPLICAS_NOT_ENOUGH,
    problems.STORE_FAILED,
    *problems.WAIT_KINDS,
    problems.SHARD_UNREACHABLE,
    problems.WRONG_SHARD,
)
_DECIDING: Final = (
    problems.TRANSACTION_UNKNOWN,
    problems.TRANSACTION_DECIDED,
    problems.TRANSACTION_GONE,
    *_CHANGING,
)
_ID: Final[Mapping[str, Any]] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": ID_TEXT,
    "schema": {"type": "string", "maxLength": ID_LENGTH_MAX},
    "examples": {"one": {"value": examples.ID}},
}
_decision = partial(
    Operation,
    targets=_BOTH,
    method="POST",
    idempotent=True,
    role=Role.PRODUCE,
    tag="transactions",
    parameters=(_ID,),
    request=Reason,
    request_required=False,
    reply=Transaction,
    text="Decided, now or before.",
    problems=_DECIDING,
)

BEGIN: Final = Operation(
    name="begin_transaction",
    targets=_BOTH,
    method="POST",
    path=_BASE,
    role=Role.PRODUCE,
    summary="Begin a transaction",
    tag="transactions",
    description="Stores a half message for each message; no consumer receives them before the "
    "commit. A retry with the same `uniqKey`s returns the same transaction: retry after a lost "
    "reply. By another group, or with another body, topic or number of messages, it is 409 "
    "`unique-key-taken`. The `uniqKey` of the first message names the shard, unless `shard` does; "
    "that shard has to be reachable.",
    parameters=(
        parameter(
            "A retry returns the same transaction; with another body or number of messages it is "
            "409 `unique-key-taken`."
        ),
    ),
    request=TransactionSpec,
    request_example=examples.SPEC,
    reply=BegunTransaction,
    example=examples.BEGUN,
    status=201,
    text="Begun.",
    problems=(
        problems.SHARD_UNKNOWN,
        problems.TRANSACTION_DECIDED,
        problems.TRANSACTIONS_REJECTED,
        problems.UNIQUE_KEY_TAKEN,
        problems.TOPIC_UNKNOWN,
        problems.TOPIC_NOT_WRITABLE,
        problems.TOPIC_INVALID,
        problems.GROUP_INVALID,
        problems.PROPERTY_INVALID,
        problems.MESSAGE_INVALID,
        *_CHANGING,
    ),
)
COMMIT: Final[Operation[Transaction]] = _decision(
    name="commit_transaction",
    path=_BASE + "/{id}:commit",
    summary="Commit a transaction",
    description="All messages become visible; they can be read when the reply is sent. It may be "
    "retried.",
)
ROLLBACK: Final[Operation[Transaction]] = _decision(
    name="rollback_transaction",
    path=_BASE + "/{id}:rollback",
    summary="Roll a transaction back",
    description="No consumer receives the messages. It may be retried.",
)
RESOLVE: Final = Operation(
    name="resolve",
    targets=_BOTH,
    method="POST",
    path=_BASE + "/{id}:resolve",
    role=Role.ADMIN,
    summary="Resolve a transaction by hand",
    description="An operator's decision, with its reason, which is kept; also about a transaction "
    "that was set aside.",
    tag="transactions",
    request=Resolution,
    reply=Transaction,
    problems=(*_DECIDING, *problems.WITH_BODY),
)
TRANSACTIONS: Final = Operation(
    name="transactions",
    targets=_BOTH,
    path=_BASE,
    role=Role.CONSUME,
    summary="Transactions, oldest first",
    description="Over all shards. Decided ones as far as remembered: the newest 50,000 of each.",
    tag="transactions",
    query=TransactionsParameters,
    reply=Transactions,
    problems=(problems.BAD_CURSOR, *_NOT_NOW),
)
TRANSACTION: Final = Operation(
    name="transaction",
    targets=_BOTH,
    path=_BASE + "/{id}",
    role=Role.CONSUME,
    summary="A transaction with its history",
    tag="transactions",
    reply=Transaction,
    problems=(problems.TRANSACTION_UNKNOWN, *_NOT_NOW),
)
