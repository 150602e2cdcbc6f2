"""Traces: all copies of a message in the store."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, NewerInteger, Reply, left_out
from mqstore.wire.examples import traces as examples
from mqstore.wire.lags import OffsetsSource, OneShard
from mqstore.wire.messages import CHECKED_BY, READ_PROBLEMS, UniqueKeyTopic, UnreadableMessage
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import PageCursor, Parameters, Shown
from mqstore.wire.shards import OfShards


class GroupStand(Reply, title="GroupStandView"):
    """Whether a group has consumed a copy."""

    group: str
    committed: Annotated[
        int | None, Field(description="Its offset in the copy's queue; null without one.")
    ]
    consumed: Annotated[
        bool,
        Field(
            description="The committed offset is past it: the group is done with it, or has sent "
            "it back, which its own copies in %RETRY%GROUP show."
        ),
    ]


class MessageCopy(Reply, title="CopyView"):
    """One record of the message."""

    kind: Annotated[
        str,
        Field(
            description="message: in its own topic; delayed; half; set-aside: a half that was "
            "checked too often; retry, dead-letter: sent back by `group`."
        ),
    ]
    state: Annotated[
        str,
        Field(
            description="stored; of delayed ones waiting, delivered; of halves pending, committed, "
            "rolled-back, set-aside, renewed (a later copy counts)."
        ),
    ]
    why: Annotated[str, Field(description="What the state was derived from.")]
    group: Annotated[str | None, Field(description="The consumer group that sent it back.")]
    due_at: Annotated[Milliseconds | None, Field(description="Of a delayed one.")]
    topic: str
    shard: NewerInteger = None
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    offset_msg_id: str
    origin_message_id: Annotated[
        str | None, Field(description="Of one that was sent back: the copy that a group got first.")
    ] = None
    store_timestamp: Milliseconds
    store_host: str
    reconsume_times: int
    segment: Annotated[str | None, Field(description="The log's file; null: expired just now.")]
    in_queue: Annotated[bool, Field(description="Its queue names this very record.")]
    groups: Annotated[
        tuple[GroupStand, ...],
        Field(description="Groups that have an offset in the copy's topic."),
    ]
    checked_by: Literal["record"] | None = left_out(CHECKED_BY)


class Trace(Reply, title="TraceView"):
    """All copies of one message that are in the log, oldest first."""

    topic: str
    uniq_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    born_timestamp: Milliseconds
    born_host: str
    copies: tuple[MessageCopy, ...]
    unreadable: tuple[UnreadableMessage, ...]
    complete: Annotated[bool, Field(description="No copy that is in the log is missing.")]


class MessageTrace(OfShards, title="MessageTraceView"):
    """The trace of one message, with the source of the groups' offsets."""

    trace: Trace
    offsets: OffsetsSource
    shard: OneShard


class Traces(OfShards, title="TracesView"):
    """The traces of messages with a key, newest first."""

    traces: tuple[Trace, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    complete: bool
    offsets: OffsetsSource
    shard: OneShard


class TraceParameters(Parameters):
    """The topic of a message."""

    topic: UniqueKeyTopic = None


class TracesParameters(Parameters):
    """A page of the traces under a key."""

    key: Annotated[
        str,
        Field(
            min_length=1,
            max_length=32_767,
            description="A unique key, or one of KEYS.",
        ),
        Shown("a key", "order-1"),
    ]
    limit: Annotated[
        int,
        Field(ge=1, le=64, description="Maximum number of records whose traces are returned."),
    ] = 16
    cursor: PageCursor = None


MESSAGE_TRACE: Final = Operation(
    name="trace",
    targets=(Target.QUERY,),
    path="/v1/messages/{id:path}/trace",
    role=Role.CONSUME,
    summary="Trace of a message: the places of its copies, and the groups that consumed them",
    tag="messages",
    query=TraceParameters,
    reply=MessageTrace,
    example=examples.TRACE,
    problems=(problems.BAD_MESSAGE_ID, *READ_PROBLEMS),
)
TRACES: Final = Operation(
    name="traces",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/traces",
    role=Role.CONSUME,
    summary="The ways of all messages with a key",
    tag="messages",
    query=TracesParameters,
    reply=Traces,
    example=examples.TRACES,
    problems=(problems.BAD_CURSOR, problems.TOPIC_UNKNOWN),
)
