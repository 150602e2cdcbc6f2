"""Messages as stored, alone and by key or time."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX, Milliseconds, Reply, Request, left_out
from mqstore.wire.examples import lookups as examples
from mqstore.wire.limits import BODY_MAX, COUNT_MAX
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target, query_parameter
from mqstore.wire.shards import OfShards

ORDERING_KEY_PROPERTY: Final = "__SHARDINGKEY"
CHECKED_BY = (
    "Given where the disk changed a block of 64 KiB around the message: only the record's own"
    " checks vouch for it. Its body, topic, tags and place in its queue are as they were written;"
    " nothing proves its other properties, timestamps, hosts and flag."
)


class Message(Reply, title="MessageView"):
    """One message as stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Field(description="Bytes of its record.")]
    offset_msg_id: str
    uniq_key: str | None
    tags: str | None
    keys: tuple[str, ...]
    properties: Annotated[
        dict[str, str], Field(description="All of them, RocketMQ's own names included.")
    ]
    flag: int
    sys_flag: int
    sys_flag_names: tuple[str, ...]
    born_timestamp: Milliseconds
    born_host: Annotated[str, Field(description="address:port")]
    store_timestamp: Milliseconds
    store_host: Annotated[str, Field(description="address:port")]
    reconsume_times: int
    prepared_transaction_offset: int
    shard: int
    body_size: Annotated[int, Field(description="Bytes of the body as stored.")]
    body: str | None = left_out("The body, when it is valid UTF-8 (else bodyBase64).")
    body_base64: str | None = left_out("The body; compressed where `compression` says so.")
    body_json: Any = left_out("The body as JSON, with `body=json`.")
    body_truncated: bool | None = left_out("True: only the first bodyMax bytes are shown.")
    compression: str | None = left_out("How the producer compressed the body: ZLIB, LZ4 or ZSTD.")
    inflated_size: int | None = left_out("Bytes of the inflated body, which is then what is shown.")
    body_problem: str | None = left_out("Why the body is shown as it is stored, not as requested.")
    checked_by: Literal["record"] | None = left_out(CHECKED_BY)

    @property
    def ordering_key(self) -> str | None:
        """The key under which it was produced in order."""
        return self.properties.get(ORDERING_KEY_PROPERTY)

    @property
    def body_bytes(self) -> bytes:
        """The body; as stored unless it was requested inflated."""
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        return (self.body or "").encode()


class Unit(Reply, title="UnitView"):
    """The ConsumeQueueExt unit of a queue entry."""

    tags_code: int
    store_timestamp: int
    bitmap: Annotated[str, Field(description="Which subscriptions want the message; hexadecimal.")]


class QueueEntry(Reply, title="QueueEntryView"):
    """The queue entry at a message's own place in its queue."""

    physical_offset: int
    size: int
    tags_code: int
    names_it: Annotated[bool, Field(description="Whether that is this very record.")]
    unit: Annotated[
        Unit | None,
        Field(description="What `tagsCode` is the address of, where it is one and that is there."),
    ]


class Checksum(Reply, title="ChecksumView"):
    """The checksums that cover a record."""

    body_crc: Annotated[int, Field(description="BODYCRC as stored; it fits the body.")]
    blocks: Annotated[
        str,
        Field(
            description="verified: all of it is as it was synced, by checksums of the log's blocks;"
            " partly-verified; not-covered: not synced yet, or no checksums; damaged: a block of it"
            " has changed, and only the record's own checks vouch for it (`checkedBy`)."
        ),
    ]
    covered_bytes: int


class MessageDetail(Message, title="MessageDetailView"):
    """One message with its queue entry, its segment and its checksums."""

    segment: Annotated[str, Field(description="The commit log's file that holds it.")]
    segment_position: int
    queue_entry: QueueEntry | None
    checksum: Checksum


class DamagedHeader(Reply, title="HeaderView"):
    """The header of a damaged record; any field may be wrong."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int
    store_timestamp: int
    born_timestamp: int
    uniq_key: str | None
    keys: tuple[str, ...]
    tags: str | None


class UnreadableMessage(Reply, title="UnreadableView"):
    """A message that is damaged."""

    physical_offset: int
    type: str
    detail: str
    queue_offset: int | None = left_out()
    shard: int | None = left_out("Where there are several.")


class ScannedRange(Reply, title="ScannedView"):
    """The range that a query searched; over several shards, `byShard` has the bounds of each."""

    from_ms: Annotated[Milliseconds, Field(alias="from")]
    to_ms: Annotated[Milliseconds, Field(alias="to")]
    candidates: Annotated[int, Field(description="Index or queue entries whose records were read.")]
    min_offset: int | None
    max_offset: Annotated[int | None, Field(description="Everything below was looked for.")]
    by_shard: dict[str, ScannedRange] | None = left_out()


class Messages(OfShards, title="MessagesView"):
    """Messages under a key or of a time range."""

    messages: tuple[Message, ...]
    unreadable: tuple[UnreadableMessage, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    complete: Annotated[
        bool,
        Field(description="No message is missing: no cursor, and the whole range was scanned."),
    ]
    scanned: ScannedRange
    store_id: str | None = left_out("The store that answered; absent where several shards did.")


class MessageIds(Request):
    """The messages to look up: offset message ids or, with a topic, unique keys."""

    ids: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=COUNT_MAX,
            description="Offset message ids, or unique keys of `topic`. An invalid one has a"
            " problem as its result.",
        ),
    ]
    topic: Annotated[
        str | None, Field(description="Topic of the messages. With it, ids are unique keys.")
    ] = None

    model_config = ConfigDict(json_schema_extra={"example": examples.IDS})


class LookupProblem(Reply):
    """The reason why one look-up of a request has no result: the members of a problem."""

    type: str
    title: str
    status: int
    detail: str
    complete: bool | None = left_out("Whether everything was searched for a unique key.")
    known: DamagedHeader | None = left_out("Of a damaged message: any field may be wrong.")


class MessageResult(Reply):
    """The result of one id: its message, or the problem."""

    id: str
    message: Message | None = left_out()
    problem: LookupProblem | None = left_out()


class MessagesById(OfShards):
    """The results of ids, in the order of the request."""

    results: tuple[MessageResult, ...]
    remaining: Annotated[
        tuple[str, ...],
        Field(
            description="The last ids of the request, for which the reply has no room: repeat the"
            " request with them. At least one id has a result."
        ),
    ]


SHARD_PARAMETER: Final = query_parameter(
    "shard",
    {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
    "The shard that is to serve the request. Any of them forwards it.",
)
BODY_PARAMETERS: Final = (
    query_parameter(
        "body",
        {"type": "string", "enum": ["auto", "text", "json", "base64", "none"], "default": "auto"},
        "How bodies are shown: `auto` is text where it is UTF-8, else base64.",
    ),
    query_parameter(
        "bodyMax",
        {"type": "integer", "minimum": 0, "maximum": BODY_MAX},
        "Bytes of each body, at most.",
    ),
    query_parameter(
        "inflate",
        {"type": "boolean", "default": False},
        "Show compressed bodies inflated, up to maxInflatedSize.",
    ),
)
"""Parameters of hot routes that show bodies."""
READ_PROBLEMS: Final = (
    problems.MESSAGE_UNKNOWN,
    problems.OFFSET_INSIDE_MESSAGE,
    problems.MESSAGE_EXPIRED,
    problems.MESSAGE_LOST,
    problems.MESSAGE_DAMAGED,
    problems.MESSAGE_SUSPECT,
)
"""Problems of operations that read one record."""
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
        *READ_PROBLEMS,
        problems.RANGE_NOT_SATISFIABLE,
        problems.BODY_NOT_INFLATABLE,
    ),
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
    problems=(problems.SHARD_NEEDED, *READ_PROBLEMS),
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
    problems=(problems.BAD_MESSAGE_ID, *READ_PROBLEMS),
)
MESSAGES_BY_ID: Final = Operation(
    name="messages_by_id",
    targets=(Target.QUERY,),
    method="POST",
    idempotent=True,
    path="/v1/messages:get",
    role=Role.CONSUME,
    summary="Many messages, by their ids",
    tag="messages",
    description="Each id has a result, in the order of the request: its message, or the problem"
    " that the request of this one message would have. A problem of one does not affect the"
    " others. The messages of a reply have at most `maxAnswerBytes` bytes, the first one excepted;"
    " `remaining` has the ids behind them. Over several shards, an id of a shard that does not"
    " reply has the problem `shard-unreachable`.",
    parameters=(SHARD_PARAMETER, *BODY_PARAMETERS),
    request=MessageIds,
    request_example=examples.IDS,
    reply=MessagesById,
    example=examples.BY_IDS,
    text="The results.",
    problems=problems.OF_SHARDS,
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
        problems.TOPIC_NOT_READABLE,
        problems.TOPIC_UNKNOWN,
        problems.MESSAGE_EXPIRED,
    ),
)
