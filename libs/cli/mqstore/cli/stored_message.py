"""Stored messages as rows, and as new messages with the same content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mqstore.cli.output import Column, field_column
from mqstore.cli.times import show_time

if TYPE_CHECKING:
    from mqstore.client import Message

BODY_SHOWN: Final = 60
"""Maximum number of characters of a body in a row of the table."""
ORDERING_KEY: Final = "__SHARDINGKEY"
OWN_PROPERTIES: Final = frozenset(
    """
1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG
CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO
INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG
MQSTORE_TRANSACTION MQSTORE_TRANSACTION_SIZE MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID
PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT
RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS
TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON
TRANSACTION_CHECK_TIMES TRANSFER_FLAG TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT
_SYS_MSG_PRIORITY_
""".split()  # noqa: SIM905 (a list of them would have 50 lines)
)
"""Names of properties that RocketMQ or the store sets: a copy of a message has none of them."""

COLUMNS: Final = (
    field_column("stored", "store_timestamp", show_time, width=24),
    field_column("shard", "shard", right=True),
    field_column("queue", "queue_id", right=True),
    field_column("offset", "queue_offset", right=True, width=10),
    field_column("tags", "tags", width=12),
    Column("keys", lambda message: " ".join(message.keys) or None, width=16),
    Column("message-id", lambda message: message.offset_msg_id, width=32),
    Column("body", lambda message: body_text(message)),
)


def body_text(message: Message) -> str:
    """The beginning of a body that is text, or its size."""
    if message.body is None:
        return f"({message.body_size} bytes)"
    return message.body[:BODY_SHOWN]


def is_own(name: str) -> bool:
    """Whether a property is RocketMQ's own."""
    return name in OWN_PROPERTIES or name.startswith("__")


def copy_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a new message with the content of a stored one, both in the API's JSON.

    Its place, unique key and times are not copied.
    """
    properties = document.get("properties") or {}
    copied = {
        name: document[name]
        for name in ("body", "bodyBase64", "tags", "keys", "flag")
        if document.get(name) is not None
    }
    copied["properties"] = {name: each for name, each in properties.items() if not is_own(name)}
    if ORDERING_KEY in properties:
        copied["orderingKey"] = properties[ORDERING_KEY]
    return copied
