"""Types of problems of transactions and their producers; ``problems`` has all types."""

from __future__ import annotations

from mqstore.wire.problem_type import register

TRANSACTION_UNKNOWN = register(
    "transaction-unknown",
    404,
    "No such transaction",
    "There is no half message of that transaction, or it belongs to another shard.",
    "Check the id and the shard.",
)
TRANSACTION_DECIDED = register(
    "transaction-decided",
    409,
    "The transaction has another decision",
    "The transaction has another decision: `decision`, `decidedAt`, `why`.",
    "Follow the recorded decision; resolve a transaction that was set aside by hand.",
)
TRANSACTION_GONE = register(
    "transaction-gone",
    410,
    "The half message is unreadable",
    "A half message is damaged or expired.",
    "Roll the transaction back.",
)
PRODUCER_UNKNOWN = register(
    "producer-unknown",
    404,
    "No such producer",
    "The producer is not registered, or its lease has ended.",
    "Register the producer again, and renew its lease in time.",
)
PRODUCER_TAKEN = register(
    "producer-taken",
    409,
    "The producer is registered by another application",
    "The producer is registered with another secret, and its lease has not ended.",
    "Send the secret of that registration, use another name, or let an administrator remove it.",
)
CALLBACK_REFUSED = register(
    "callback-refused",
    403,
    "Callbacks to this address are not allowed",
    "A setting forbids callbacks to this address; `detail` names it.",
    "Use another address, or allow this one by `callbackHosts`, `callbackPorts` or `callbackHttp`.",
)
COORDINATOR_NOT_READY = register(
    "coordinator-not-ready",
    503,
    "Transactions are not ready",
    "Half messages are being read, or no store-writer can be reached; or query cannot reach the"
    " coordinator. `detail` says why.",
    "Retry after `Retry-After`; a repeated request is safe.",
    retry_after_s=1,
)
