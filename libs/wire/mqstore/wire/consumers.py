"""Shared consumer groups: messages are leased to consumers, acknowledged, returned."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, Reply, Request
from mqstore.wire.examples import consumers as examples
from mqstore.wire.limits import (
    COUNT_MAX,
    DELAY_LEVEL_MAX,
    DELAY_MAX_S,
    EXPRESSION_LENGTH_MAX,
    LEASE_DEFAULT_S,
    LEASE_MAX_S,
    MEMBER_LENGTH_MAX,
    PULL_COUNT_DEFAULT,
    PULL_WAIT_MAX_S,
    REASON_LENGTH_MAX,
    RECEIPT_LENGTH_MAX,
    TOPICS_MAX,
)
from mqstore.wire.messages import Message, UnreadableMessage
from mqstore.wire.operation import GROUP_SCHEMA, Operation, Role, Target
from mqstore.wire.parameters import ShardParameters
from mqstore.wire.shards import OfShards

Receipt = Annotated[str, StringConstraints(min_length=1, max_length=RECEIPT_LENGTH_MAX)]
MemberName = Annotated[str, StringConstraints(min_length=1, max_length=MEMBER_LENGTH_MAX)]
DelaySeconds = Annotated[float, Field(ge=0, le=DELAY_MAX_S)]
Expression = Annotated[str, StringConstraints(max_length=EXPRESSION_LENGTH_MAX)]
Receipts = Annotated[
    list[Receipt],
    Field(min_length=1, max_length=COUNT_MAX, description="As `receive` returned them."),
]
LeaseSeconds = Annotated[
    float,
    Field(
        gt=0,
        le=LEASE_MAX_S,
        description="Seconds after which a message is delivered again, unless it was acknowledged.",
    ),
]


class WantedMessages(Request):
    """The messages of a topic that a group wants; without a filter, all of them."""

    tags: Annotated[Expression | None, Field(description="Tags to match, as `a || b`.")] = None
    sql: Annotated[Expression | None, Field(description="SQL92 over properties.")] = None

    @model_validator(mode="after")
    def _has_one_filter(self) -> Self:
        if self.tags is not None and self.sql is not None:
            raise ValueError("give tags or sql, not both")
        return self


class ReceiveSpec(Request):
    """The messages that a consumer wants.

    All consumers of a group name the same topics and filters, as RocketMQ requires: a message that
    a filter excludes is passed over for the whole group.
    """

    topics: Annotated[
        dict[str, WantedMessages],
        Field(
            min_length=1,
            max_length=TOPICS_MAX,
            description="Filters by topic. Messages to be retried come without being named.",
        ),
    ]
    max: Annotated[int, Field(ge=1, le=COUNT_MAX, strict=True, description="Messages.")] = (
        PULL_COUNT_DEFAULT
    )
    wait: Annotated[
        float,
        Field(ge=0, le=PULL_WAIT_MAX_S, description="Seconds to wait until a message is there."),
    ] = 0
    invisible_s: LeaseSeconds = LEASE_DEFAULT_S
    member: Annotated[
        MemberName | None,
        Field(
            description="The caller in an ordered group; it gets messages of the queues that it"
            " holds.",
        ),
    ] = None

    model_config = ConfigDict(json_schema_extra={"example": examples.RECEIVE})


class LeasedMessage(Message):
    """A message that is leased to one consumer."""

    receipt: Annotated[str, Field(description="Names the lease; valid until it expires.")]
    delivery_attempt: Annotated[
        int, Field(description="1, and one more for each failure: a return or an expired lease.")
    ]
    source_topic: Annotated[
        str,
        Field(description="The topic that it was produced to; `topic` may be a retry topic."),
    ]
    lease_expires: Annotated[Milliseconds, Field(description="About when the lease ends.")]


class ReceivedMessages(OfShards):
    """Leased messages."""

    group: str
    messages: tuple[LeasedMessage, ...]
    unreadable: Annotated[
        tuple[UnreadableMessage, ...],
        Field(description="Damaged messages, which the group passes over."),
    ]
    expired: Annotated[
        int,
        Field(
            description="Messages that retention deleted before they were acknowledged, with those"
            " that were never delivered."
        ),
    ]
    dead: Annotated[
        int, Field(description="Messages that became dead letters: each delivery had failed.")
    ]
    full: Annotated[
        bool,
        Field(
            description="Whether a queue delivers nothing new until messages are acknowledged: it"
            " has as many leased ones as it may have, or is that of an ordered group."
        ),
    ]

    model_config = ConfigDict(json_schema_extra={"example": examples.RECEIVED})


class Acknowledgement(Request):
    """Messages that were consumed."""

    receipts: Receipts

    model_config = ConfigDict(json_schema_extra={"example": examples.ACKNOWLEDGEMENT})


class Return(Request):
    """Messages that could not be consumed now."""

    receipts: Receipts
    delay_level: Annotated[
        int,
        Field(
            ge=-1,
            le=DELAY_LEVEL_MAX,
            strict=True,
            description="Level of messageDelayLevel until the next delivery; 0: 3 for the first"
            " retry, one more for each further one; -1: a dead letter at once.",
        ),
    ] = 0
    delay_s: Annotated[
        DelaySeconds | None,
        Field(
            description="In place of a level: seconds until the next delivery, at least. In a"
            " shared group the shortest level of messageDelayLevel that is as long applies; in an"
            " ordered group the message holds its queue so long, without both for 1 s.",
        ),
    ] = None
    reason: Annotated[
        str, Field(max_length=REASON_LENGTH_MAX, description="Kept with the message.")
    ] = ""

    model_config = ConfigDict(json_schema_extra={"example": examples.RETURN})


class Extension(Request):
    """Leases to end at another time."""

    receipts: Receipts
    invisible_s: Annotated[
        float,
        Field(ge=0, le=LEASE_MAX_S, description="Seconds from now; 0 delivers again at once."),
    ] = LEASE_DEFAULT_S

    model_config = ConfigDict(json_schema_extra={"example": examples.EXTENSION})


class ReceiptStatus(StrEnum):
    """The result of one receipt."""

    OK = "ok"
    LOST = "lost"
    UNKNOWN = "unknown"
    STALE = "stale"
    EARLY = "early"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    EXPIRED = "expired"
    DAMAGED = "damaged"


class ReceiptResult(Reply):
    """The result of one receipt."""

    receipt: str
    status: Annotated[
        ReceiptStatus,
        Field(
            description="ok: done, now or before. lost: the lease expired, and another consumer got"
            " the message. unknown: the group has not received the message since its offset was"
            " set. stale: the queue of an ordered group went to another member; stop handling its"
            " messages, and receive again. early: an earlier message of the ordered queue is not"
            " acknowledged. unreachable: the message's shard did not reply; send the receipt again."
            " refused: a returned message is stored once more, and its properties do not fit then;"
            " shorten `reason`, or acknowledge the message; it stays leased. expired: a returned"
            " message has expired, or its topic was deleted; damaged: it cannot be read; of both"
            " there is neither a copy for a retry nor a dead letter, and the group goes on."
        ),
    ]


class ReceiptResults(OfShards):
    """The result of each receipt, in the order of the request."""

    group: str
    results: tuple[ReceiptResult, ...]

    model_config = ConfigDict(json_schema_extra={"example": examples.RESULTS})


_PATH: Final = "/v1/groups/{group}"
_PARAMETERS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": "group",
        "in": "path",
        "required": True,
        "schema": {"type": "string", **GROUP_SCHEMA},
        "example": "billing",
        "description": "Consumer group. It needs no creation.",
    },
)
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED)
_RECEIPTS: Final = (
    problems.GROUP_INVALID,
    problems.RECEIPT_INVALID,
    *problems.OF_SHARDS,
    *_UNWRITTEN,
    *problems.WITH_BODY,
)

RECEIVE: Final = Operation(
    name="receive",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH + ":receive",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    query=ShardParameters,
    summary="Lease messages",
    tag="consumers",
    description="Leases messages of the named topics, and of the group's retry topic, to the "
    "caller: no other consumer gets them before the lease expires. Acknowledge each message with "
    "its `receipt`; what is not acknowledged in time is delivered again, and is a dead letter "
    "(`%DLQ%GROUP`) after the group's `retryMaxTimes`. In an ordered group, `member` gets the "
    "next messages of its queues, in order; a queue delivers more once they are acknowledged. The "
    "group's offset in `consumerOffset.json` is that of its lowest message that is not "
    "acknowledged, so a broker continues there.",
    request=ReceiveSpec,
    reply=ReceivedMessages,
    example=examples.RECEIVED,
    problems=(
        problems.TOPIC_UNKNOWN,
        problems.BAD_FILTER,
        problems.GROUP_INVALID,
        problems.GROUP_UNKNOWN,
        problems.LIMIT_REACHED,
        problems.GROUP_DISABLED,
        problems.TOPIC_NOT_READABLE,
        problems.GROUP_ORDERED,
        problems.MEMBER_UNKNOWN,
        problems.OVERLOADED,
        *problems.OF_SHARDS,
        *_UNWRITTEN,
        *problems.WITH_BODY,
    ),
)
ACKNOWLEDGE: Final = Operation(
    name="acknowledge",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":ack",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    query=ShardParameters,
    summary="Acknowledge messages",
    tag="consumers",
    description="Ends the delivery of messages. May be repeated. Acknowledgements are on disk "
    "within flushConsumerOffsetInterval: after a kill some messages may be delivered again.",
    request=Acknowledgement,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=_RECEIPTS,
)
RETURN: Final = Operation(
    name="give_back",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":nack",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    query=ShardParameters,
    summary="Return messages, to be delivered later",
    tag="consumers",
    description="Stores a copy for `%RETRY%GROUP`, as a broker does, which is delivered after a "
    "delay level; after `retryMaxTimes`, or with level -1, for `%DLQ%GROUP`. In an ordered "
    "group the message itself holds its queue until it is delivered again. May be repeated.",
    request=Return,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=(
        *_RECEIPTS,
        problems.TOPIC_NOT_WRITABLE,
        problems.GROUP_UNKNOWN,
        problems.LIMIT_REACHED,
        problems.PROPERTY_INVALID,
        problems.STORE_NOT_WRITABLE,
        problems.DISK_FULL,
        problems.PAGE_CACHE_BUSY,
        *problems.WAIT_KINDS,
        problems.WRITES_PAUSED,
    ),
)
EXTEND: Final = Operation(
    name="extend",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":extend",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    query=ShardParameters,
    summary="Extend leases, or end them",
    tag="consumers",
    description="Sets the end of leases, counted from now. 0 gives the messages back unused: they"
    " are delivered again at once, and it is no failure.",
    request=Extension,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=_RECEIPTS,
)
