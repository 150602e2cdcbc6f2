"""Shared consumer groups: messages are leased to consumers, acknowledged, returned."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mqstore.wire.base import Milliseconds, Reply, Request
from mqstore.wire.examples import consumers as examples
from mqstore.wire.limits import (
    COUNT_MAX,
    EXPRESSION_LENGTH_MAX,
    LEASE_DEFAULT_S,
    LEASE_MAX_S,
    PULL_COUNT_DEFAULT,
    PULL_WAIT_MAX_S,
    REASON_LENGTH_MAX,
    RECEIPT_LENGTH_MAX,
    TOPICS_MAX,
)
from mqstore.wire.messages import Message, UnreadableMessage
from mqstore.wire.shards import OfShards

Receipt = Annotated[str, StringConstraints(min_length=1, max_length=RECEIPT_LENGTH_MAX)]
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

    model_config = ConfigDict(json_schema_extra={"example": examples.RECEIVE})


class LeasedMessage(Message):
    """A message that is leased to one consumer."""

    receipt: Annotated[str, Field(description="Names the lease; valid until it expires.")]
    delivery_attempt: Annotated[
        int, Field(description="How often the group got it: 1 the first time; retries count.")
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
        int, Field(description="Messages that retention deleted before they were acknowledged.")
    ]
    dead: Annotated[
        int, Field(description="Messages that became dead letters: each delivery had failed.")
    ]
    full: Annotated[
        bool,
        Field(
            description="Whether a queue delivers nothing new until messages are acknowledged: it"
            " has as many leased ones as it may have."
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
            le=18,
            strict=True,
            description="Level of messageDelayLevel until the next delivery; 0: 3 for the first"
            " retry, one more for each further one; -1: a dead letter at once.",
        ),
    ] = 0
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
    UNREACHABLE = "unreachable"


class ReceiptResult(Reply):
    """The result of one receipt."""

    receipt: str
    status: Annotated[
        ReceiptStatus,
        Field(
            description="ok: done, now or before. lost: the lease expired, and another consumer got"
            " the message. unknown: the group has not received the message since its offset was"
            " set. unreachable: the message's shard did not reply; send the receipt again."
        ),
    ]


class ReceiptResults(OfShards):
    """The result of each receipt, in the order of the request."""

    group: str
    results: tuple[ReceiptResult, ...]

    model_config = ConfigDict(json_schema_extra={"example": examples.RESULTS})
