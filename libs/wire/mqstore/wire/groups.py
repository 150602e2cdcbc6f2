"""Consumer groups: settings, committed offsets, subscriptions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from mqstore.wire.base import INT32_MAX, INT64_MAX, MappingReply, NewerInteger, Reply, Request
from mqstore.wire.examples import groups as examples
from mqstore.wire.limits import COMMITS_MAX, EXPRESSION_LENGTH_MAX, QUEUES_MAX
from mqstore.wire.shards import OfShards
from mqstore.wire.topics import Attributes, Flag

QueueId = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
Count = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]


class GroupSpec(Request):
    """RocketMQ's SubscriptionGroupConfig. A field that is not given stays as it is; in a new group
    it has RocketMQ's default."""

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


class GroupConfig(MappingReply):
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
    topics: Annotated[tuple[str, ...], Field(description="Topics that it has offsets in.")]

    model_config = ConfigDict(json_schema_extra={"example": examples.GROUP})


class Groups(Reply, title="GroupList"):
    """Consumer groups, by name."""

    groups: tuple[Group, ...]


class GroupOffset(Reply):
    """The committed offset of a group in one queue."""

    topic: str
    shard: NewerInteger = None
    queue_id: int
    committed: Annotated[
        int | None, Field(description="The next message to consume; null: none was committed.")
    ]
    min_offset: int
    max_offset: int
    lag: Annotated[int, Field(description="Messages still to be consumed.")]


class GroupOffsets(OfShards):
    """The committed offsets of a group."""

    group: str
    offsets: tuple[GroupOffset, ...]

    model_config = ConfigDict(json_schema_extra={"example": examples.OFFSETS})


class NewOffset(Request):
    """An offset to commit for one queue."""

    topic: str
    queue_id: QueueId
    offset: Annotated[Offset, Field(description="Of the next message to consume.")]


class OffsetCommit(Request):
    """Offsets to commit for a group: all or none."""

    offsets: Annotated[list[NewOffset], Field(min_length=1, max_length=COMMITS_MAX)]
    allow_back: Annotated[
        Flag, Field(description="Take offsets before the committed ones, to consume again.")
    ] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.COMMIT})


class OffsetReset(Request):
    """The position from which a group continues with a topic."""

    topic: str
    to: Literal["earliest", "latest", "timestamp"]
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
        if (self.to == "timestamp") != (self.timestamp is not None):
            raise ValueError("timestamp goes with to: timestamp, and only with it")
        return self


class SubscriptionSpec(Request):
    """The messages of the topic that the group receives."""

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
    """A group's subscription to a topic, with an expression."""

    group: str
    topic: str
    expression: str
    type: str
    version: Annotated[int, Field(description="Grows with each registration.")]
    born_ms: Annotated[
        int, Field(description="When it was registered with this expression; ms since the epoch.")
    ]

    model_config = ConfigDict(json_schema_extra={"example": examples.SUBSCRIPTION})


class Subscriptions(Reply, title="SubscriptionList"):
    """A group's subscriptions, by topic."""

    subscriptions: tuple[Subscription, ...]


class OffsetChange(Reply):
    """The change of a reset to one queue; ``before`` is null without a committed offset."""

    shard: NewerInteger = None
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class OffsetsReset(OfShards):
    """The changes of a reset, by queue."""

    group: str
    topic: str
    dry_run: bool
    queues: tuple[OffsetChange, ...]

    model_config = ConfigDict(json_schema_extra={"example": examples.RESET_DONE})
