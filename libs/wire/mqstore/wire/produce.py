"""Messages to store, and the places at which they are stored."""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from mqstore.wire import idempotency, problems
from mqstore.wire.base import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    UINT32_MAX,
    Milliseconds,
    Reply,
    Request,
    left_out,
)
from mqstore.wire.examples import stores as examples
from mqstore.wire.limits import DELAY_S_MAX, ORDERING_KEY_LENGTH_MAX
from mqstore.wire.operation import RELAY, SEND_TOPIC_PARAMETER, Operation, Role, Target
from mqstore.wire.times import checked_ms, format_time, parse_time

Durability = Literal["sync", "async", "replicated"]
Int32 = Annotated[int, Field(ge=INT32_MIN, le=INT32_MAX, strict=True)]
QueueId = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]


class Content(Request):
    """The fields of every new message."""

    body: Annotated[str | None, Field(description="Text, stored as UTF-8.")] = None
    body_base64: Annotated[str | None, Field(description="Bytes, in standard base64.")] = None
    tags: Annotated[str | None, Field(description="One tag, for filtering.")] = None
    keys: Annotated[list[str], Field(description="Index keys, without spaces inside.")] = []
    properties: Annotated[
        dict[str, str],
        Field(description="User properties; RocketMQ's own names are refused."),
    ] = {}
    queue_id: Annotated[QueueId | None, Field(description="Default: round-robin.")] = None
    flag: Annotated[Int32, Field(description="The application's own flag.")] = 0
    uniq_key: str | None = None

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        body_bytes(self.body, self.body_base64)
        return self


class NewMessage(Content):
    """One message to store. Give ``body`` or ``bodyBase64``; neither is an empty body."""

    queue_id: Annotated[
        QueueId | None, Field(description="Default: round-robin; one per request.")
    ] = None
    ordering_key: Annotated[
        Annotated[str, Field(min_length=1, max_length=ORDERING_KEY_LENGTH_MAX)] | None,
        Field(
            description="Messages under one key go to one queue, in order: the key chooses the "
            "queue, and the shard, by a hash. Stored as `__SHARDINGKEY`, RocketMQ's message group. "
            "Without `queueId`. Messages of one request may have several keys.",
            examples=["customer-7"],
        ),
    ] = None
    delay_level: Annotated[
        int,
        Field(
            ge=0,
            le=INT32_MAX,
            strict=True,
            description="0: at once. Else the level of messageDelayLevel, from 1: the message "
            "is delivered to its topic after that time; until then it is in SCHEDULE_TOPIC_XXXX, "
            "as `waitsIn` of the reply says.",
            examples=[0, 3],
        ),
    ] = 0
    deliver_at: Annotated[
        Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)] | str | None,
        Field(
            description="The time at which the message is delivered to its topic, at most 40 days "
            "ahead: RFC 3339, or milliseconds since the epoch. It is never early, and up to a "
            "second late; a time that has passed means at once. Until then the message is in "
            "rmq_sys_wheel_timer, as `waitsIn` of the reply says. Without `delayS` and "
            "`delayLevel`.",
            examples=["2026-11-28T08:00:00Z"],
        ),
    ] = None
    delay_s: Annotated[
        Annotated[float, Field(ge=0, le=DELAY_S_MAX, strict=True)] | None,
        Field(
            description="Seconds until then, from the arrival of the request.",
            examples=[90, 0.5],
        ),
    ] = None
    uniq_key: Annotated[
        str | None,
        Field(
            description="Default: a generated unique key. A message with a key that the topic "
            "had a short time ago is not stored again: the reply is that of the first one."
        ),
    ] = None
    crc32c: Annotated[
        Annotated[int, Field(ge=0, le=UINT32_MAX, strict=True)] | None,
        Field(
            alias="crc32c",
            description="CRC-32C of the body's bytes; a body that has another one is refused.",
        ),
    ] = None


def delivery_time(message: NewMessage, now_ms: int) -> int | None:
    """Return the time of delivery that a message names, in milliseconds since the epoch; None for
    none, or one that has passed.

    Raises ValueError for several delays, text that is no time, a year or seconds as milliseconds
    (``checked_ms``), and a time over 40 days ahead.
    """
    given = [message.deliver_at is not None, message.delay_s is not None, message.delay_level > 0]
    if sum(given) > 1:
        raise ValueError("give one of deliverAt, delayS and delayLevel")
    if message.delay_s is not None:
        deliver_ms = now_ms + math.ceil(message.delay_s * 1000)
    elif message.deliver_at is not None:
        at = message.deliver_at
        deliver_ms = parse_time(at) if isinstance(at, str) else checked_ms(at)
    else:
        return None
    if deliver_ms > now_ms + DELAY_S_MAX * 1000:
        latest = format_time(now_ms + DELAY_S_MAX * 1000)
        raise ValueError(f"deliverAt is over 40 days ahead; the latest time is {latest}")
    return deliver_ms if deliver_ms > now_ms else None


def body_bytes(text: str | None, encoded: str | None) -> bytes:
    """Return a body that is given as text or in base64.

    Raises ValueError if both are given, or for invalid base64.
    """
    if encoded is None:
        return b"" if text is None else text.encode()
    if text is not None:
        raise ValueError("give body or bodyBase64, not both")
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:  # binascii.Error is one
        raise ValueError(f"bodyBase64 is no base64: {error}") from None


class ProduceRequest(Request):
    """Messages of one topic; several are one contiguous append, all or none. They go to one queue,
    but for those with an ordering key."""

    messages: Annotated[list[NewMessage], Field(min_length=1)]
    durability: Annotated[
        Durability | None,
        Field(
            description="sync: on disk before the reply. async: in the page cache, survives "
            "the process but not the machine. replicated: on disk and on a slave. Default: as "
            "flushDiskType, and with brokerRole SYNC_MASTER on a slave; sync waits for a slave "
            "then too."
        ),
    ] = None


class MessagePlace(Reply, title="Placed"):
    """The place at which a message is stored."""

    offset_msg_id: str
    uniq_key: str
    queue_id: Annotated[int, Field(description="In `waitsIn`, if that is given.")]
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Field(description="Bytes of its record.")]
    store_timestamp: Annotated[int, Field(description="Milliseconds since the epoch.")]
    shard: int
    repeat: bool = left_out(
        "Stored before, under this unique key; left out when false.", default=False
    )
    waits_in: str | None = left_out(
        "The topic in which a delayed message waits: `queueId` and `queueOffset` are its place"
        " there, and it gets another one in its own topic. Left out for other messages."
    )
    due_at: Milliseconds | None = left_out(
        "When a delayed message is delivered to its own topic, where it gets another offset "
        "message id. Left out for other messages."
    )


class ProduceReply(Reply, title="ProduceReply"):
    """The places of the messages, in the order of the request."""

    messages: tuple[MessagePlace, ...]


BATCH_TYPE: Final = "application/x-rocketmq-batch"
_PROBLEMS: Final = (
    problems.TOPIC_UNKNOWN,
    problems.TOPIC_NOT_WRITABLE,
    problems.LIMIT_REACHED,
    problems.SHARD_UNKNOWN,
    problems.WRONG_SHARD,
    problems.UNIQUE_KEY_TAKEN,
    problems.SHARD_UNREACHABLE,
    problems.TOPIC_INVALID,
    problems.PROPERTY_INVALID,
    problems.CHECKSUM_MISMATCH,
    problems.MESSAGE_INVALID,
    problems.STORE_NOT_WRITABLE,
    *problems.READ_ONLY_KINDS,
    problems.WRITES_PAUSED,
    problems.PAGE_CACHE_BUSY,
    problems.IN_SYNC_REPLICAS_NOT_ENOUGH,
    problems.CHANGE_UNCONFIRMED,
    problems.STORE_FAILED,
    *problems.WAIT_KINDS,
    *problems.FILE_KINDS,
)
_TEXT: Final = (
    "One message or a batch; a batch is one contiguous append, all or none, to one queue, except "
    "for messages with an `orderingKey`: each goes to the queue of its key. The "
    "reply comes when the requested durability is reached. A problem of one message of a batch has "
    "its number in `index`. "
    "`application/x-rocketmq-batch` is the body that RocketMQ's clients encode (per message: "
    "total size 4, magic 4, body CRC 4, flag 4, body length 4, body, properties length 2, "
    "properties; big-endian); `queueId` and `durability` are then query parameters, and a "
    "property `__SHARDINGKEY` is the ordering key."
)
_PARAMETERS: Final[tuple[Mapping[str, Any], ...]] = (
    SEND_TOPIC_PARAMETER,
    {
        "name": "queueId",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Only with application/x-rocketmq-batch.",
    },
    {
        "name": "shard",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "description": "The shard that is meant: another one answers 421 with its address, or "
        "forwards the request if it has `X-Mqstore-Relay`. "
        "Without it messages with an `orderingKey`, `uniqKey` or Idempotency-Key (the first that "
        "is given) are stored on the shard that the key names, all others on the one that got "
        "them.",
    },
    {
        "name": "durability",
        "in": "query",
        "schema": {"enum": ["sync", "async", "replicated"]},
        "description": "Only with application/x-rocketmq-batch.",
    },
    {
        "name": RELAY,
        "in": "header",
        "schema": {"const": "1"},
        "description": "With `?shard=` of another shard: forward the request, for clients that do "
        "not reach the addresses of single shards.",
    },
    {
        "name": "X-Mqstore-Crc32c",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0, "maximum": UINT32_MAX},
        "description": "CRC-32C of the request's whole body, in decimal: a body that has "
        "another one is refused, and nothing is stored. JSON also takes one for each message.",
    },
    idempotency.parameter(
        "A request that was stored under it before is answered with the first one's placement "
        "and `repeat`, within uniqueKeyWindow; with another body or number of messages it is "
        "409 `unique-key-taken`."
    ),
)
PRODUCE: Final = Operation(
    name="produce",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/topics/{topic}/messages",
    role=Role.PRODUCE,
    summary="Store messages",
    tag="messages",
    description=_TEXT,
    parameters=_PARAMETERS,
    request=ProduceRequest,
    request_example=examples.PRODUCE,
    request_content={BATCH_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    reply=ProduceReply,
    example=examples.PRODUCED,
    status=201,
    text="Stored, with the requested durability.",
    problems=_PROBLEMS,
    problem_members=dict.fromkeys(problems.WAIT_KINDS, examples.PRODUCED),
)
