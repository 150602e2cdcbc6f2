"""query's operations on messages: by id, key and time, as they arrive, and their traces."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import lookups as examples
from mqstore.wire.examples import traces as trace_examples
from mqstore.wire.messages import MessageDetail, Messages
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target
from mqstore.wire.traces import MessageTrace, Traces

_OF_RECORDS: Final = (
    problems.MESSAGE_UNKNOWN,
    problems.OFFSET_INSIDE_MESSAGE,
    problems.MESSAGE_EXPIRED,
    problems.MESSAGE_LOST,
    problems.MESSAGE_DAMAGED,
    problems.MESSAGE_SUSPECT,
)
EVENTS_TYPE: Final = "text/event-stream"

MESSAGE_BODY: Final = Operation(
    name="body",
    targets=(Target.QUERY,),
    path="/v1/messages/{id:path}/body",
    role=Role.CONSUME,
    summary="A message's body, for download",
    tag="messages",
    reply=Nothing,
    contents={
        200: ("All of it.", BYTES),
        206: ("The bytes of `Range`.", BYTES),
    },
    problems=(
        problems.BAD_MESSAGE_ID,
        *_OF_RECORDS,
        problems.RANGE_NOT_SATISFIABLE,
        problems.BODY_NOT_INFLATABLE,
    ),
)
MESSAGE_TRACE: Final = Operation(
    name="trace",
    targets=(Target.QUERY,),
    path="/v1/messages/{id:path}/trace",
    role=Role.CONSUME,
    summary="Trace of a message: the places of its copies, and the groups that consumed them",
    tag="messages",
    reply=MessageTrace,
    example=trace_examples.TRACE,
    problems=(problems.BAD_MESSAGE_ID, *_OF_RECORDS),
)
MESSAGE_AT: Final = Operation(
    name="message_at",
    targets=(Target.QUERY,),
    path="/v1/messages",
    role=Role.CONSUME,
    summary="One message, by its physical offset",
    tag="messages",
    reply=MessageDetail,
    example=examples.MESSAGE_DETAIL,
    problems=(problems.SHARD_NEEDED, *_OF_RECORDS),
)
MESSAGE: Final = Operation(
    name="message",
    targets=(Target.QUERY,),
    path="/v1/messages/{id:path}",
    role=Role.CONSUME,
    summary="One message, by its id",
    tag="messages",
    reply=MessageDetail,
    example=examples.MESSAGE_DETAIL,
    problems=(problems.BAD_MESSAGE_ID, *_OF_RECORDS),
)
MESSAGES: Final = Operation(
    name="messages",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/messages",
    role=Role.CONSUME,
    summary="Messages by key, or all of a time range",
    tag="messages",
    reply=Messages,
    example=examples.BY_KEY,
    problems=(problems.BAD_CURSOR, problems.TOPIC_UNKNOWN, problems.MESSAGE_EXPIRED),
)
TRACES: Final = Operation(
    name="traces",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/traces",
    role=Role.CONSUME,
    summary="The ways of all messages with a key",
    tag="messages",
    reply=Traces,
    example=trace_examples.TRACES,
    problems=(problems.BAD_CURSOR, problems.TOPIC_UNKNOWN),
)
TOPIC_EVENTS: Final = Operation(
    name="events",
    targets=(Target.QUERY,),
    path="/v1/topics/{topic}/events",
    role=Role.CONSUME,
    summary="Follow a topic: each message as it arrives",
    tag="messages",
    reply=Nothing,
    contents={
        200: (
            "Events `message`, `unreadable` and `position`.",
            {EVENTS_TYPE: {"schema": {"type": "string"}, "example": examples.EVENT}},
        )
    },
    problems=(
        problems.BAD_CURSOR,
        problems.BAD_FILTER,
        problems.SHARD_NEEDED,
        problems.TOPIC_UNKNOWN,
        problems.MESSAGE_EXPIRED,
    ),
)
