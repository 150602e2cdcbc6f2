"""Queues: their bounds, and messages pulled from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, model_validator

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX, INT64_MAX, Milliseconds, Reply, Request, left_out
from mqstore.wire.examples import lookups as examples
from mqstore.wire.limits import (
    COMMITS_MAX,
    COUNT_MAX,
    PULL_COUNT_DEFAULT,
    PULL_WAIT_MAX_S,
    TOPICS_MAX,
)
from mqstore.wire.messages import FilterParameters, LookupProblem, Message, UnreadableMessage
from mqstore.wire.operation import (
    GROUP_SCHEMA,
    TOPIC_PARAMETER,
    Operation,
    Role,
    Target,
)
from mqstore.wire.parameters import INTEGER, NUMBER, OfShard, Parameters, Shown
from mqstore.wire.shards import OfShards
from mqstore.wire.times import Time

QueueNumber = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]


class Pull(Reply, title="PullView"):
    """Messages of one queue, ascending."""

    messages: tuple[Message, ...]
    unreadable: tuple[UnreadableMessage, ...]
    next: Annotated[int, Field(description="The queue offset to go on with.")]
    min_offset: int
    max_offset: int
    status: Annotated[str, Field(description="RocketMQ's GetMessageStatus.")]
    shard: int


class Queue(Reply, title="QueueView"):
    """The bounds of one queue: its first offset, and the next one to be written."""

    queue_id: int
    min_offset: int
    max_offset: int
    shard: int


class Queues(OfShards, title="QueuesView"):
    """A topic's queues."""

    topic: str
    queues: tuple[Queue, ...]


class QueueOffset(Reply, title="OffsetView"):
    """The first queue offset stored at or after a time; maxOffset when there is none."""

    topic: str
    queue_id: int
    timestamp: Milliseconds
    offset: int
    min_offset: int
    max_offset: int
    shard: int


class QueueName(Request):
    """One queue."""

    topic: str
    queue_id: QueueNumber
    shard: Annotated[
        QueueNumber | None, Field(description="Needed where there are several shards.")
    ] = None


class OffsetsByTime(Request):
    """A time, and the queues whose offsets are requested: single ones, and all of topics."""

    timestamp: Annotated[
        Time, Field(description="Milliseconds since the epoch, or a time in RFC 3339.")
    ]
    queues: Annotated[list[QueueName] | None, Field(min_length=1, max_length=COMMITS_MAX)] = None
    topics: Annotated[
        list[str] | None,
        Field(min_length=1, max_length=TOPICS_MAX, description="Topics with all their queues."),
    ] = None

    model_config = ConfigDict(json_schema_extra={"example": examples.BY_TIME})

    @model_validator(mode="after")
    def _names_queues(self) -> Self:
        if self.queues is None and self.topics is None:
            raise ValueError("give queues, topics or both")
        return self


class OffsetResult(Reply):
    """The result of one queue: its offset, as `OffsetView` has it, or the problem."""

    topic: str
    queue_id: Annotated[int | None, Field(description="Null: the problem is that of the topic.")]
    shard: int | None
    offset: int | None = left_out()
    min_offset: int | None = left_out()
    max_offset: int | None = left_out()
    problem: LookupProblem | None = left_out()


class QueueOffsets(OfShards):
    """The results of `queues` in the order of the request; then those of `topics`, by topic, shard
    and queue."""

    timestamp: Milliseconds
    results: tuple[OffsetResult, ...]


RECORDS_TYPE: Final = "application/x-rocketmq-records"
_PULL_TEXT: Final = (
    "`status` is RocketMQ's; go on at `next` whatever it is. With `tags` or `sql` 10,000 "
    "entries are looked at before the answer is empty (fewer messages with an expression of "
    "more than 64 characters), and a `wait` goes on until a message "
    "matches. With `Accept: application/x-rocketmq-records` the answer is the records as they "
    "stand in the log, one after the other, as RocketMQ's clients decode them; all else is in "
    "`X-Mqstore-…` headers (Status, Next, Min-Offset, Max-Offset, Messages, Unreadable, Shard)."
)
_PULL_PARAMETERS: Final[tuple[Mapping[str, Any], ...]] = (
    TOPIC_PARAMETER,
    {
        "name": "queue",
        "in": "path",
        "required": True,
        "schema": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "example": 0,
    },
)


class PullParameters(FilterParameters):
    """A pull: where it begins, its bounds, and the filter and the form of its messages."""

    shard: Annotated[
        OfShard,
        Field(
            description="Whose queue it is; needed where there are several shards. Any of them "
            "answers for it."
        ),
    ] = None
    offset: Annotated[
        int | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="Queue offset to begin with; without it, the queue's first message.",
        ),
        INTEGER,
    ] = None
    max: Annotated[int, Field(ge=1, le=COUNT_MAX, description="Messages, at most."), INTEGER] = (
        PULL_COUNT_DEFAULT
    )
    wait: Annotated[
        float,
        Field(ge=0, le=PULL_WAIT_MAX_S, description="Seconds to wait at the queue's end."),
        NUMBER,
    ] = 0
    group: Annotated[
        str | None,
        Field(
            description="The consumer group that pulls: `consumer_group` of "
            "rocketmq_messages_out_total. It changes nothing in the answer.",
            json_schema_extra=dict(GROUP_SCHEMA),
        ),
        Shown("a group", "billing"),
    ] = None


QUEUES: Final = Operation(
    name="queues",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/queues",
    role=Role.CONSUME,
    summary="A topic's queues and their bounds",
    tag="queues",
    reply=Queues,
    example=examples.QUEUES,
    problems=(problems.TOPIC_UNKNOWN,),
)


class OffsetParameters(Parameters):
    """A time."""

    timestamp: Annotated[
        Time,
        Field(description="Milliseconds since the epoch, or a time in RFC 3339."),
        Shown("a time", 1795273269000),
    ]


OFFSET_BY_TIME: Final = Operation(
    name="offset_by_time",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/queues/{queue}/offset",
    role=Role.CONSUME,
    summary="The queue offset of a time",
    tag="queues",
    query=OffsetParameters,
    reply=QueueOffset,
    example=examples.OFFSET,
    problems=(problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN, problems.SHARD_NEEDED),
)
OFFSETS_BY_TIME: Final = Operation(
    name="offsets_by_time",
    targets=(Target.QUERY,),
    method="POST",
    idempotent=True,
    path="/v1/offsets:by-time",
    role=Role.CONSUME,
    summary="The offsets of a time in many queues",
    tag="queues",
    request=OffsetsByTime,
    reply=QueueOffsets,
    example=examples.OFFSETS,
    problems=problems.WITH_BODY,
)
PULL: Final = Operation(
    name="pull",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/queues/{queue}/messages",
    role=Role.CONSUME,
    summary="Messages of a queue, from an offset; waits for arrivals when `wait` is given",
    tag="queues",
    description=_PULL_TEXT,
    parameters=_PULL_PARAMETERS,
    query=PullParameters,
    reply=Pull,
    example=examples.PULL,
    text="What was found, and where to go on.",
    contents={200: ("", {RECORDS_TYPE: {"schema": {"type": "string", "format": "binary"}}})},
    problems=(
        problems.BAD_FILTER,
        problems.GROUP_INVALID,
        problems.GROUP_DISABLED,
        problems.SHARD_NEEDED,
        *problems.OF_SHARDS,
        problems.TOPIC_NOT_READABLE,
        problems.TOPIC_UNKNOWN,
        problems.QUEUE_UNKNOWN,
    ),
)
