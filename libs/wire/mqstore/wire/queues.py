"""Queues: their bounds, and messages pulled from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX, INT64_MAX, Milliseconds, Reply
from mqstore.wire.examples import lookups as examples
from mqstore.wire.limits import BODY_MAX, COUNT_MAX, PULL_COUNT_DEFAULT, PULL_WAIT_MAX_S
from mqstore.wire.messages import Message, UnreadableMessage
from mqstore.wire.operation import TOPIC_PARAMETER, Operation, Role, Target
from mqstore.wire.shards import OfShards


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


RECORDS_TYPE: Final = "application/x-rocketmq-records"


def _parameter(name: str, schema: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": text, **more}


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
    _parameter(
        "shard",
        {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "Whose queue it is; needed where there are several shards. Any of them answers for it.",
    ),
    _parameter(
        "offset",
        {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
        "Queue offset to begin with; without it, the queue's first message.",
    ),
    _parameter(
        "max",
        {"type": "integer", "minimum": 1, "maximum": COUNT_MAX, "default": PULL_COUNT_DEFAULT},
        "Messages, at most.",
    ),
    _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": PULL_WAIT_MAX_S, "default": 0},
        "Seconds to wait at the queue's end.",
    ),
    _parameter(
        "tags",
        {"type": "string"},
        "Only messages with one of these tags: `A || B`; `*` is all.",
        example="created || changed",
    ),
    _parameter(
        "sql",
        {"type": "string"},
        "Only messages whose properties this SQL92 expression is true of; not with `tags`. "
        "Where a group has subscribed with the same expression, bitmaps name the matches.",
        example="a > 5 AND b IS NOT NULL",
    ),
    _parameter(
        "body",
        {"type": "string", "enum": ["auto", "text", "json", "base64", "none"], "default": "auto"},
        "How bodies are shown: `auto` is text where it is UTF-8, else base64.",
    ),
    _parameter(
        "bodyMax",
        {"type": "integer", "minimum": 0, "maximum": BODY_MAX},
        "Bytes of each body, at most.",
    ),
    _parameter(
        "inflate",
        {"type": "boolean", "default": False},
        "Show compressed bodies inflated, up to maxInflatedSize.",
    ),
    _parameter(
        "group",
        {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]+$", "maxLength": 120},
        "The consumer group that pulls: `consumer_group` of rocketmq_messages_out_total. It "
        "changes nothing in the answer.",
        example="billing",
    ),
)

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
OFFSET_BY_TIME: Final = Operation(
    name="offset_by_time",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/queues/{queue}/offset",
    role=Role.CONSUME,
    summary="The queue offset of a time",
    tag="queues",
    reply=QueueOffset,
    example=examples.OFFSET,
    problems=(problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN, problems.SHARD_NEEDED),
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
    reply=Pull,
    example=examples.PULL,
    text="What was found, and where to go on.",
    contents={200: ("", {RECORDS_TYPE: {"schema": {"type": "string", "format": "binary"}}})},
    problems=(
        problems.BAD_FILTER,
        problems.GROUP_INVALID,
        problems.SHARD_NEEDED,
        *problems.OF_SHARDS,
        problems.TOPIC_UNKNOWN,
        problems.QUEUE_UNKNOWN,
    ),
)
