"""Consumer groups: settings, committed offsets, subscriptions."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX, MappingReply, NewerInteger, Offset, Reply, Request
from mqstore.wire.examples import groups as examples
from mqstore.wire.limits import COMMITS_MAX, EXPRESSION_LENGTH_MAX, QUEUES_MAX
from mqstore.wire.operation import Nothing, Operation, Role, Target, json_of
from mqstore.wire.parameters import ListParameters, Parameters
from mqstore.wire.shards import OfShards
from mqstore.wire.times import Time
from mqstore.wire.topics import Attributes, Flag

QueueId = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]
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
    """A page of the consumer groups, by name."""

    groups: tuple[Group, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


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
    """Committed offsets of a group: a page of them, or those that were committed."""

    group: str
    offsets: tuple[GroupOffset, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None

    model_config = ConfigDict(json_schema_extra={"example": examples.OFFSETS})


class NewOffset(Request):
    """An offset to commit for one queue."""

    topic: str
    queue_id: QueueId
    offset: Annotated[Offset, Field(description="Of the next message to consume.")]
    epoch: Annotated[
        Offset | None,
        Field(description="The member's epoch of the queue; in an ordered group only."),
    ] = None


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
    to: Literal["earliest", "latest", "timestamp", "group"]
    timestamp: Annotated[
        Time | None,
        Field(
            description="Milliseconds since the epoch, or a time in RFC 3339; with `to: timestamp`"
            " only."
        ),
    ] = None
    source: Annotated[
        str | None,
        Field(
            description="Group whose offsets are copied; with `to: group` only. Queues without an"
            " offset of it do not change."
        ),
    ] = None
    queue_ids: Annotated[
        list[QueueId] | None,
        Field(min_length=1, max_length=QUEUES_MAX, description="Default: all of the topic's."),
    ] = None
    dry_run: Annotated[Flag, Field(description="Only show what would change.")] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.RESET})

    @model_validator(mode="after")
    def _has_its_position(self) -> Self:
        if (self.to == "timestamp") != (self.timestamp is not None):
            raise ValueError("timestamp goes with to: timestamp, and only with it")
        if (self.to == "group") != (self.source is not None):
            raise ValueError("source goes with to: group, and only with it")
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
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


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


_PATH: Final = "/v1/groups/{group}"
_OFFSETS: Final = _PATH + "/offsets"
_SUBSCRIPTIONS: Final = _PATH + "/subscriptions"
_SUBSCRIPTION: Final = _SUBSCRIPTIONS + "/{topic}"
_UNKNOWN: Final = (problems.GROUP_UNKNOWN, problems.GROUP_INVALID)
_REFUSED: Final = (problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN, problems.GROUP_INVALID)
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED)
_NO_OFFSETS: Final = (*_REFUSED, problems.OFFSET_REFUSED, *_UNWRITTEN, *problems.WITH_BODY)
_NO_COMMIT: Final = (
    *_NO_OFFSETS,
    problems.GROUP_UNKNOWN,
    problems.LIMIT_REACHED,
    problems.EPOCH_STALE,
)

GROUPS: Final = Operation(
    name="groups",
    targets=(Target.WRITER,),
    path="/v1/groups",
    role=Role.CONSUME,
    summary="All groups",
    tag="groups",
    query=ListParameters,
    reply=Groups,
)
GROUP: Final = Operation(
    name="group",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="One group",
    tag="groups",
    reply=Group,
    example=examples.GROUP,
    problems=_UNKNOWN,
)
PUT_GROUP: Final = Operation(
    name="put_group",
    targets=(Target.WRITER,),
    method="PUT",
    path=_PATH,
    role=Role.ADMIN,
    summary="Create a group, or change it",
    tag="groups",
    request=GroupSpec,
    reply=Group,
    contents={201: ("Created.", json_of(Group))},
    problems=(
        problems.GROUP_INVALID,
        problems.LIMIT_REACHED,
        *_UNWRITTEN,
        *problems.WITH_BODY,
    ),
)


class DeletionParameters(Parameters):
    """Parts of a group that are deleted with it."""

    clean_offset: Annotated[bool, Field(description="Delete the offsets of the group too.")] = False


DELETE_GROUP: Final = Operation(
    name="delete_group",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_PATH,
    role=Role.ADMIN,
    summary="Delete a group",
    tag="groups",
    query=DeletionParameters,
    reply=Nothing,
    status=204,
    problems=(*_UNKNOWN, *_UNWRITTEN),
)


class OffsetsParameters(ListParameters):
    """A page of the offsets of a group."""

    topic: Annotated[
        str | None,
        Field(
            description="Only this topic; without it, all topics in which the group has offsets."
        ),
    ] = None


OFFSETS: Final = Operation(
    name="group_offsets",
    targets=(Target.WRITER,),
    path=_OFFSETS,
    role=Role.CONSUME,
    summary="Where a group stands",
    tag="groups",
    query=OffsetsParameters,
    reply=GroupOffsets,
    example=examples.OFFSETS,
    problems=_REFUSED,
)
COMMIT_OFFSETS: Final = Operation(
    name="commit_offsets",
    targets=(Target.WRITER,),
    method="PUT",
    path=_OFFSETS,
    role=Role.CONSUME,
    summary="Commit offsets",
    tag="groups",
    request=OffsetCommit,
    reply=GroupOffsets,
    example=examples.OFFSETS,
    problems=_NO_COMMIT,
)
RESET_OFFSETS: Final = Operation(
    name="reset_offsets",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_OFFSETS + ":reset",
    role=Role.ADMIN,
    summary="Move a group",
    tag="groups",
    request=OffsetReset,
    reply=OffsetsReset,
    example=examples.RESET_DONE,
    problems=(problems.GROUP_UNKNOWN, problems.LIMIT_REACHED, *_NO_OFFSETS),
)
SUBSCRIPTIONS: Final = Operation(
    name="subscriptions",
    targets=(Target.WRITER,),
    path=_SUBSCRIPTIONS,
    role=Role.CONSUME,
    summary="A group's subscriptions",
    tag="groups",
    query=ListParameters,
    reply=Subscriptions,
    problems=(problems.GROUP_INVALID,),
)
SUBSCRIPTION: Final = Operation(
    name="subscription",
    targets=(Target.WRITER,),
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="One subscription",
    tag="groups",
    reply=Subscription,
    example=examples.SUBSCRIPTION,
    problems=(problems.SUBSCRIPTION_UNKNOWN, problems.GROUP_INVALID),
)
SUBSCRIBE: Final = Operation(
    name="put",
    targets=(Target.WRITER,),
    method="PUT",
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="Subscribe with an expression",
    tag="groups",
    request=SubscriptionSpec,
    reply=Subscription,
    example=examples.SUBSCRIPTION,
    problems=(
        problems.TOPIC_UNKNOWN,
        problems.GROUP_UNKNOWN,
        problems.LIMIT_REACHED,
        problems.BAD_FILTER,
        *problems.WITH_BODY,
        *_UNWRITTEN,
        problems.GROUP_INVALID,
    ),
)
UNSUBSCRIBE: Final = Operation(
    name="remove",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="End a subscription",
    tag="groups",
    reply=Nothing,
    status=204,
    problems=(problems.SUBSCRIPTION_UNKNOWN, *_UNWRITTEN, problems.GROUP_INVALID),
)
