"""Topics, groups and consumer offsets, as store-writer reads and answers them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from mqstore.storage.admin.group_offsets import Position
from mqstore.storage.filter.expression import EXPRESSION_LENGTH_MAX
from mqstore.writer import admin_examples as examples

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
QUEUES_MAX: Final = 1024
COMMITS_MAX: Final = 500
"""Offsets of one request."""

QueueCount = Annotated[int, Field(ge=1, le=QUEUES_MAX, strict=True)]
QueueId = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
Count = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Attributes = Annotated[
    dict[str, str], Field(max_length=16, description="Only in a store of format 5.x.")
]


class _Answer(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid"
    )


class _Request(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ShardsTold(_Answer):
    """Which shards were told, and which could not be."""

    asked: list[int]
    missing: Annotated[list[int], Field(description="Nothing was changed there: ask again.")]
    why: Annotated[dict[str, str], Field(description="By number, of those that are missing.")]


class OfShards(_Answer):
    """What is the same on all shards."""

    shards: Annotated[
        ShardsTold | None,
        Field(exclude_if=lambda told: told is None, description="Where there are several."),
    ] = None


class TopicSpec(_Request):
    """How a topic should be. What is not given stays as it is; a new topic has 4 queues, perm 6."""

    queues: Annotated[QueueCount | None, Field(description="To read as to write.")] = None
    read_queues: QueueCount | None = None
    write_queues: QueueCount | None = None
    perm: Annotated[
        Literal[2, 4, 6] | None, Field(description="2 write, 4 read, 6 both, as in RocketMQ.")
    ] = None
    order: Flag | None = None
    filter_type: Literal["SINGLE_TAG", "MULTI_TAG"] | None = None
    attributes: Attributes | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"queues": 4}})


class Topic(OfShards):
    """A topic as it is."""

    topic: str
    queues: Annotated[int, Field(description="Write queues.")]
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    attributes: dict[str, str]


class TopicList(_Answer):
    topics: list[Topic]


class TopicDeletion(OfShards):
    """What goes with a topic."""

    topic: str
    queues: int
    messages: Annotated[
        int, Field(description="Messages in its queues; the log keeps them until they expire.")
    ]
    groups: Annotated[list[str], Field(description="Groups whose offsets in it go too.")]
    dry_run: Annotated[bool, Field(description="Whether nothing has been done.")]

    model_config = ConfigDict(json_schema_extra={"example": examples.TOPIC_DELETION})


class GroupSpec(_Request):
    """RocketMQ's SubscriptionGroupConfig. What is not given stays, or is RocketMQ's default."""

    consume_enable: Flag | None = None
    consume_from_min_enable: Flag | None = None
    consume_broadcast_enable: Flag | None = None
    consume_message_orderly: Annotated[Flag | None, Field(description="5.x only.")] = None
    retry_queues: Count | None = None
    retry_times_max: Count | None = None
    broker_id: Count | None = None
    which_broker_when_consume_slowly: Count | None = None
    notify_consumer_ids_changed_enable: Flag | None = None
    consume_timeout_minutes: Annotated[Count | None, Field(description="5.x only.")] = None
    attributes: Attributes | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"retryTimesMax": 16}})


class GroupConfig(_Answer):
    """A group's settings, RocketMQ's defaults where it has none."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queues: int
    retry_times_max: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    consume_timeout_minutes: int
    attributes: dict[str, str]


class Group(OfShards):
    """A consumer group."""

    group: str
    configured: Annotated[
        bool, Field(description="Whether it was created; it may consume without.")
    ]
    config: GroupConfig
    topics: Annotated[list[str], Field(description="Topics that it has offsets in.")]

    model_config = ConfigDict(json_schema_extra={"example": examples.GROUP})


class GroupList(_Answer):
    groups: list[Group]


class GroupOffset(_Answer):
    """Where a group stands in one queue."""

    topic: str
    shard: int
    queue_id: int
    committed: Annotated[
        int | None, Field(description="The next message to consume; null: none was committed.")
    ]
    min_offset: int
    max_offset: int
    lag: Annotated[int, Field(description="Messages still to be consumed.")]


class GroupOffsets(OfShards):
    group: str
    offsets: list[GroupOffset]

    model_config = ConfigDict(json_schema_extra={"example": examples.OFFSETS})


class NewOffset(_Request):
    topic: str
    queue_id: QueueId
    offset: Annotated[Offset, Field(description="Of the next message to consume.")]


class OffsetCommit(_Request):
    """Where a group stands now: all of it is taken, or none."""

    offsets: Annotated[list[NewOffset], Field(min_length=1, max_length=COMMITS_MAX)]
    allow_back: Annotated[
        Flag, Field(description="Take offsets before the committed ones, to consume again.")
    ] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.COMMIT})


class OffsetReset(_Request):
    """Where a group shall go on with a topic."""

    topic: str
    to: Position
    timestamp: Annotated[
        Offset | None,
        Field(description="Milliseconds since the epoch; with `to: timestamp` only."),
    ] = None
    queue_ids: Annotated[
        list[QueueId] | None,
        Field(min_length=1, max_length=QUEUES_MAX, description="Default: all of the topic's."),
    ] = None
    dry_run: Annotated[Flag, Field(description="Only show what would change.")] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.RESET})

    @model_validator(mode="after")
    def _has_a_time(self) -> Self:
        if (self.to is Position.TIMESTAMP) != (self.timestamp is not None):
            raise ValueError("timestamp goes with to: timestamp, and only with it")
        return self


class SubscriptionSpec(_Request):
    """Which messages of the topic the group wants."""

    expression: Annotated[
        str,
        Field(
            min_length=1,
            max_length=EXPRESSION_LENGTH_MAX,
            description="SQL92 over properties, as RocketMQ reads it.",
            examples=[examples.SUBSCRIPTION["expression"]],
        ),
    ]
    type: Literal["SQL92"] = "SQL92"

    model_config = ConfigDict(
        json_schema_extra={"example": {"expression": examples.SUBSCRIPTION["expression"]}}
    )


class Subscription(OfShards):
    """A subscription as it is."""

    group: str
    topic: str
    expression: str
    type: str
    version: Annotated[int, Field(description="Grows with each registration.")]
    born_ms: Annotated[
        int, Field(description="When it was registered with this expression; ms since the epoch.")
    ]

    model_config = ConfigDict(json_schema_extra={"example": examples.SUBSCRIPTION})


class SubscriptionList(_Answer):
    """By topic."""

    subscriptions: list[Subscription]


class OffsetChange(_Answer):
    """What a reset does to one queue."""

    shard: int
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class OffsetsReset(OfShards):
    group: str
    topic: str
    dry_run: bool
    queues: list[OffsetChange]

    model_config = ConfigDict(json_schema_extra={"example": examples.RESET_DONE})
