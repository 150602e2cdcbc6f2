"""Messages as stored, alone and by key or time."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import INT64_MAX, Milliseconds, Reply, Request, left_out
from mqstore.wire.examples import lookups as examples
from mqstore.wire.limits import BODY_MAX, COUNT_MAX
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target
from mqstore.wire.parameters import OfShard, PageCursor, Parameters, Shown
from mqstore.wire.shards import OfShards
from mqstore.wire.times import Time

ORDERING_KEY_PROPERTY: Final = "__SHARDINGKEY"
CHECKED_BY = (
    "Given where the disk changed a block of 64 KiB around the message: only the record's own"
    " checks vouch for it. Its body, topic, tags and place in its queue are as they were written;"
    " nothing proves its other properties, timestamps, hosts and flag."
)


UniqueKeyTopic = Annotated[
    str | None, Field(description="Topic of the message. With it, the id is a unique key.")
]


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


class BodyShape(StrEnum):
    """Form of a body that a request selects."""

    AUTO = "auto"
    """Text where it is valid UTF-8, else base64."""
    TEXT = "text"
    """Text; invalid UTF-8 becomes U+FFFD."""
    JSON = "json"
    """JSON embedded in the reply; as ``auto`` if the body is not JSON."""
    BASE64 = "base64"
    NONE = "none"


class BodyParameters(Parameters):
    """How the request wants message bodies shown."""

    body: Annotated[
        BodyShape,
        Field(description="How bodies are shown: `auto` is text if it is UTF-8, else base64."),
    ] = BodyShape.AUTO
    body_max: Annotated[
        int | None, Field(ge=0, le=BODY_MAX, description="Maximum number of bytes of each body.")
    ] = None
    inflate: Annotated[
        bool, Field(description="Inflate compressed bodies, up to maxInflatedSize.")
    ] = False


class MessageParameters(BodyParameters):
    """The form of a message, and its topic."""

    topic: UniqueKeyTopic = None


class MessageAtParameters(BodyParameters):
    """The form of a message, and its place in the log."""

    physical_offset: Annotated[
        int,
        Field(
            ge=0,
            le=INT64_MAX,
            description="Physical offset of the message's first byte.",
        ),
        Shown("the log's first", 0),
    ]


class DownloadParameters(Parameters):
    """The topic of a message, and whether its body is inflated."""

    topic: UniqueKeyTopic = None
    inflate: Annotated[
        bool, Field(description="Inflate a compressed body, up to maxInflatedSize.")
    ] = False


class ByIdsParameters(BodyParameters):
    """The form of messages, and their shard."""

    shard: Annotated[
        OfShard, Field(description="The shard that is to serve the request. Any forwards it.")
    ] = None


class PageParameters(BodyParameters):
    """A page of messages of a time: its form, order and bounds."""

    from_: Annotated[Time, Field(alias="from", description="Stored at or after this time.")] = 0
    to: Annotated[Time, Field(description="Stored at or before this time.")] = INT64_MAX
    order: Annotated[
        Literal["newest", "oldest"],
        Field(description="`oldest`: oldest first; only without a key."),
    ] = "newest"
    limit: Annotated[
        int, Field(ge=1, le=COUNT_MAX, description="Maximum number of messages in the reply.")
    ] = 64
    cursor: PageCursor = None


class MessagesParameters(PageParameters):
    """A page of messages under a key, or of a time."""

    key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=32_767,
            description="A unique key or one of KEYS; without it, all messages of the times.",
        ),
        Shown("a key", "order-1"),
    ] = None
    include: Annotated[
        str | None,
        Field(
            pattern="^(delayed|half)(,(delayed|half))*$",
            description="Also messages of this topic that are still delayed, or half messages "
            "of a transaction: `delayed,half`.",
        ),
        Shown("both", "delayed,half"),
    ] = None


class FilterParameters(BodyParameters):
    """The form of messages, and which of them."""

    tags: Annotated[
        str | None,
        Field(
            description="Only messages with one of these tags: `A || B`; `*` is all.",
        ),
        Shown("two tags", "created || changed"),
    ] = None
    sql: Annotated[
        str | None,
        Field(
            description="Only messages whose properties match this SQL92 expression; not with "
            "`tags`. Where a group has subscribed with the same expression, bitmaps name the "
            "matches.",
        ),
        Shown("an expression", "a > 5 AND b IS NOT NULL"),
    ] = None


class FollowParameters(FilterParameters):
    """A stream of messages, and where it begins."""

    from_: Annotated[
        Time | None,
        Field(
            alias="from",
            description="Begin with the first message stored at or after this time; without it, "
            "with the next message that arrives.",
        ),
    ] = None


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
    query=DownloadParameters,
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
    query=MessageAtParameters,
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
    query=MessageParameters,
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
    query=ByIdsParameters,
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
    query=MessagesParameters,
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
    query=FollowParameters,
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
