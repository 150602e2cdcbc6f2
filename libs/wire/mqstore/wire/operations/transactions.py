"""Transactions. The coordinator relays each to the shard that its id names; store-writer of that
shard serves it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mqstore.wire import problems
from mqstore.wire.examples import transactions as examples
from mqstore.wire.idempotency import parameter
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.transactions import (
    ID_LENGTH_MAX,
    ID_TEXT,
    BegunTransaction,
    Reason,
    Resolution,
    Transaction,
    Transactions,
    TransactionSpec,
)

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
    problems.STORE_FAILED,
    problems.FLUSH_TIMEOUT,
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
