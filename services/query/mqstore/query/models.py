"""What the query service answers, as msgspec structs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mqstore.service.shards import ShardsView

Milliseconds = Annotated[int, Meta(description="Milliseconds since the epoch.")]
CheckedBy = Annotated[
    Literal["record"] | UnsetType,
    Meta(
        description="Given where the disk changed a block of 64 KiB around the message: only the"
        " record's own checks vouch for it. Its body, topic, tags and place in its queue are as"
        " they were written; nothing proves its other properties, timestamps, hosts and flag."
    ),
]
OfShards = Annotated[
    ShardsView | UnsetType, Meta(description="Where several were asked: who, and who is missing.")
]


class MessageView(msgspec.Struct, rename="camel", gc=False):
    """One message as stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Meta(description="Bytes of its record.")]
    offset_msg_id: str
    uniq_key: str | None
    tags: str | None
    keys: list[str]
    properties: Annotated[
        dict[str, str], Meta(description="All of them, RocketMQ's own names included.")
    ]
    flag: int
    sys_flag: int
    sys_flag_names: list[str]
    born_timestamp: Milliseconds
    born_host: Annotated[str, Meta(description="address:port")]
    store_timestamp: Milliseconds
    store_host: Annotated[str, Meta(description="address:port")]
    reconsume_times: int
    prepared_transaction_offset: int
    shard: int
    body_size: Annotated[int, Meta(description="Bytes of the body as stored.")] = 0
    body: Annotated[
        str | UnsetType,
        Meta(description="The body, when it is valid UTF-8 (else bodyBase64)."),
    ] = UNSET
    body_base64: Annotated[
        str | UnsetType, Meta(description="The body; compressed where `compression` says so.")
    ] = UNSET
    body_json: Annotated[
        msgspec.Raw | UnsetType, Meta(description="The body itself, asked for by `body=json`.")
    ] = UNSET
    body_truncated: Annotated[
        bool | UnsetType, Meta(description="True: only the first bodyMax bytes are shown.")
    ] = UNSET
    compression: Annotated[
        str | UnsetType,
        Meta(description="How the producer compressed the body: ZLIB, LZ4 or ZSTD."),
    ] = UNSET
    inflated_size: Annotated[
        int | UnsetType,
        Meta(description="Bytes of the inflated body, which is then what is shown."),
    ] = UNSET
    body_problem: Annotated[
        str | UnsetType,
        Meta(description="Why the body is not shown as it was asked for, but as it is stored."),
    ] = UNSET
    checked_by: CheckedBy = UNSET


class UnitView(msgspec.Struct, rename="camel", gc=False):
    """What a queue entry leaves to its ConsumeQueueExt unit."""

    tags_code: int
    store_timestamp: int
    bitmap: Annotated[str, Meta(description="Which subscriptions want the message; hexadecimal.")]


class QueueEntryView(msgspec.Struct, rename="camel", gc=False):
    """What stands in a message's own place in its queue."""

    physical_offset: int
    size: int
    tags_code: int
    names_it: Annotated[bool, Meta(description="Whether that is this very record.")]
    unit: Annotated[
        UnitView | None,
        Meta(description="What `tagsCode` is the address of, where it is one and that is there."),
    ]


class ChecksumView(msgspec.Struct, rename="camel", gc=False):
    """What vouches for a record's bytes."""

    body_crc: Annotated[int, Meta(description="BODYCRC as stored; it fits the body.")]
    blocks: Annotated[
        str,
        Meta(
            description="verified: all of it is as it was synced, by checksums of the log's blocks;"
            " partly-verified; not-covered: not synced yet, or no checksums; damaged: a block of it"
            " has changed, and only the record's own checks vouch for it (`checkedBy`)."
        ),
    ]
    covered_bytes: int


class MessageDetailView(MessageView, rename="camel", gc=False, kw_only=True):
    """One message with all that is known of it."""

    segment: Annotated[str, Meta(description="The commit log's file that holds it.")]
    segment_position: int
    queue_entry: QueueEntryView | None
    checksum: ChecksumView


class HeaderView(msgspec.Struct, rename="camel", gc=False):
    """What a damaged record says of itself; any of it may be wrong."""

    topic: str
    queue_id: int
    queue_offset: int
    size: int
    store_timestamp: int
    born_timestamp: int
    uniq_key: str | None
    keys: list[str]
    tags: str | None


class UnreadableView(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """A message that is there, and is damaged."""

    physical_offset: int
    type: str
    detail: str
    queue_offset: int | None = None
    shard: Annotated[int | None, Meta(description="Where several were asked.")] = None


class PullView(msgspec.Struct, rename="camel", gc=False):
    """Messages of one queue, ascending."""

    messages: list[MessageView]
    unreadable: list[UnreadableView]
    next: Annotated[int, Meta(description="The queue offset to go on with.")]
    min_offset: int
    max_offset: int
    status: Annotated[str, Meta(description="RocketMQ's GetMessageStatus.")]
    shard: int


class ScannedView(
    msgspec.Struct,
    rename={"from_ms": "from", "to_ms": "to", "by_shard": "byShard"}
    | {"min_offset": "minOffset", "max_offset": "maxOffset"},
    gc=False,
):
    """What a query looked at; over several shards their own bounds are in `byShard` alone."""

    from_ms: Milliseconds
    to_ms: Milliseconds
    candidates: Annotated[int, Meta(description="Index or queue entries whose records were read.")]
    min_offset: int | None
    max_offset: Annotated[int | None, Meta(description="Everything below was looked for.")]
    by_shard: dict[str, ScannedView] | UnsetType = UNSET


class MessagesView(msgspec.Struct, rename="camel", gc=False):
    """Messages under a key or of a time range."""

    messages: list[MessageView]
    unreadable: list[UnreadableView]
    next: Annotated[str | None, Meta(description="The cursor to go on with.")]
    complete: Annotated[
        bool, Meta(description="No message is missing: no cursor, and the whole range was scanned.")
    ]
    scanned: ScannedView
    store_id: Annotated[
        str | UnsetType,
        Meta(description="The store that answered; absent where several shards did."),
    ] = UNSET
    shards: OfShards = UNSET


class ShardView(msgspec.Struct, rename="camel", gc=False):
    """One shard, and where its services are."""

    shard: int
    store_host: str
    writer_url: str
    query_url: str


class StoreView(msgspec.Struct, rename="camel", gc=False):
    """What readers go by; offsets are physical, in bytes."""

    writer: Annotated[
        str,
        Meta(
            description="alive; recovering: an opening is under way; down: nothing new arrives, "
            "and what is there is answered."
        ),
    ]
    health: Annotated[str, Meta(description="What the last writer said of the store.")]
    store_id: str
    shard: int
    epoch: int
    min_offset: int
    max_offset: int
    flushed_offset: Annotated[int, Meta(description="Everything below is on disk.")]
    dispatched_offset: Annotated[int, Meta(description="Everything below is in its queues.")]
    index_complete: bool
    shards: Annotated[
        list[ShardView], Meta(description="That there shall be; none where there is no list.")
    ]


class SegmentView(msgspec.Struct, rename="camel", gc=False):
    """A file of the commit log, as far as it is on disk."""

    name: str
    offset: Annotated[int, Meta(description="Of its first byte in the log.")]
    size: Annotated[int, Meta(description="Bytes that can be read.")]
    full: Annotated[bool, Meta(description="Nothing will be added.")]


class SegmentsView(msgspec.Struct, rename="camel", gc=False):
    """The commit log's files, oldest first."""

    epoch: Annotated[int, Meta(description="Within one, no byte that could be read changes.")]
    shard: int
    segments: list[SegmentView]


class QueueView(msgspec.Struct, rename="camel", gc=False):
    """Bounds of one queue: the first offset that is there, and the next to be written."""

    queue_id: int
    min_offset: int
    max_offset: int
    shard: int


class QueuesView(msgspec.Struct, rename="camel", gc=False):
    topic: str
    queues: list[QueueView]
    shards: OfShards = UNSET


class OffsetView(msgspec.Struct, rename="camel", gc=False):
    """The first queue offset stored at or after a time; maxOffset when there is none."""

    topic: str
    queue_id: int
    timestamp: Milliseconds
    offset: int
    min_offset: int
    max_offset: int
    shard: int


SCHEMAS: Final = (
    MessageView,
    MessageDetailView,
    PullView,
    MessagesView,
    QueuesView,
    SegmentsView,
    StoreView,
    OffsetView,
)
