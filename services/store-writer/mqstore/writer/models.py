"""What store-writer reads and answers: msgspec structs for the hot route, else pydantic."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from mqstore.service.membership import ShardEntry
from mqstore.storage.log.put_refusal import PutRefusal
from mqstore.storage.own.quarantine import QuarantineEntry
from mqstore.storage.retention.archive import ArchiveMark
from mqstore.storage.retention.pins import LEASE_MAX_S, Pin
from mqstore.writer import examples

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
UINT32_MAX: Final = 2**32 - 1
INT64_MAX: Final = 2**63 - 1

Int32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
QueueId = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class NewMessage(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """One message to store. Give ``body`` or ``bodyBase64``; neither is an empty body."""

    body: Annotated[str, Meta(description="Text, stored as UTF-8.")] | None = None
    body_base64: Annotated[str, Meta(description="Bytes, in standard base64.")] | None = None
    tags: Annotated[str, Meta(description="One tag, for filtering.")] | None = None
    keys: Annotated[list[str], Meta(description="Index keys, without spaces inside.")] = []
    properties: Annotated[
        dict[str, str],
        Meta(description="User properties; RocketMQ's own names are refused."),
    ] = {}
    queue_id: (
        Annotated[QueueId, Meta(description="Default: round-robin; one per request.")] | None
    ) = None
    flag: Annotated[Int32, Meta(description="The application's own flag.")] = 0
    delay_level: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32_MAX,
            description="0: at once. Else the level of messageDelayLevel, from 1: the message "
            "comes to its topic after that time; until then it stands in SCHEDULE_TOPIC_XXXX, "
            "which the answer's queueId and queueOffset are of.",
            examples=[0, 3],
        ),
    ] = 0
    uniq_key: (
        Annotated[
            str,
            Meta(
                description="Default: a generated unique key. A message with a key that was given "
                "to the topic a short time ago is not stored again: the answer is the first one's."
            ),
        ]
        | None
    ) = None
    crc32c: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=UINT32_MAX,
                description="CRC-32C of the body's bytes; a body that has another one is refused.",
            ),
        ]
        | None
    ) = None


class ProduceRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """Messages of one topic; several are one contiguous append to one queue, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1)]
    durability: (
        Annotated[
            Literal["sync", "async"],
            Meta(
                description="sync: on disk before the answer. async: in the page cache, survives "
                "the process but not the machine. Default: as flushDiskType."
            ),
        ]
        | None
    ) = None


class ProduceOutline(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A ``ProduceRequest`` whose messages are still to be decoded."""

    messages: Annotated[list[msgspec.Raw], Meta(min_length=1)]
    durability: Literal["sync", "async"] | None = None


class Placed(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Where one message stands."""

    offset_msg_id: str
    uniq_key: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Meta(description="Bytes of its record.")]
    store_timestamp: Annotated[int, Meta(description="Milliseconds since the epoch.")]
    shard: int
    repeat: Annotated[
        bool, Meta(description="Stored before, under this unique key; left out when false.")
    ] = False


class ProduceReply(msgspec.Struct, rename="camel", gc=False):
    """In the order of the request."""

    messages: list[Placed]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid"
    )


class Store(_Model):
    """A moment's picture of the store. Offsets are physical, in bytes."""

    store_id: str
    shard: int
    epoch: int
    format: Annotated[str, Field(description="RocketMQ generation: 4.9 or 5.x.")]
    health: str
    root: str
    commit_log: str
    min_offset: int
    max_offset: int
    flushed_offset: Annotated[int, Field(description="Everything below is on disk.")]
    dispatched_offset: Annotated[int, Field(description="Everything below is queued and indexed.")]
    segments: int
    segment_size: int
    topics: int
    queues: int
    index_files: int
    index_complete: bool
    disk_total: int
    disk_used: int
    disk_free: int
    read_only_reason: str | None
    index_offset: Annotated[int, Field(description="Everything below is indexed.")]
    hash_slots: Annotated[int, Field(description="Of an index file: maxHashSlotNum.")]
    index_num: Annotated[int, Field(description="Items of one: maxIndexNum.")]
    flush_behind: Annotated[int, Field(description="Bytes that are not known to be on disk.")]
    dispatch_behind: Annotated[int, Field(description="Bytes that are not in their queues.")]
    index_trouble: Annotated[
        str | None, Field(description="Why keys may be missed until the index is rebuilt.")
    ] = None
    index_behind: Annotated[int, Field(description="Bytes that are not in the index.")]
    damaged_stretches: Annotated[
        int, Field(description="Met by dispatch since the opening; the log has them.")
    ]
    shards: Annotated[
        list[ShardEntry], Field(description="That there shall be; none where there is no list.")
    ] = []


class Operation(_Model):
    """Something that takes long."""

    name: Annotated[str, Field(description="opening or index.")]
    stage: str
    done: Annotated[int, Field(description="Bytes.")]
    total: int
    percent: int
    started_ms: int
    ended_ms: Annotated[int | None, Field(description="null: it runs.")]


class OperationList(_Model):
    """The newest first."""

    operations: list[Operation]


class Flushed(_Model):
    """What is on disk."""

    durable_offset: Annotated[
        int, Field(description="Physical: everything below is on disk.", examples=[1048576])
    ]


class WritesSpec(_Model):
    """Whether messages are taken."""

    paused: Annotated[bool, Field(strict=True)]
    reason: Annotated[
        str, Field(max_length=200, description="What clients are told while writes are paused.")
    ] = ""

    model_config = ConfigDict(
        json_schema_extra={"example": {"paused": False, "reason": "moving to another volume"}},
        extra="forbid",
    )


class PutRefusalView(_Model):
    """Why messages are rejected."""

    reason: Annotated[
        str,
        Field(
            description="read-only, failed, closing, paused, disk-full (a ratio), no-room, "
            "too-many-files or disk-error."
        ),
    ]
    detail: str
    figures: Annotated[dict[str, int | float | str], Field(description="Bytes and percent.")]

    @classmethod
    def of(cls, refusal: PutRefusal) -> Self:
        figures = dict(refusal.figures)
        return cls(reason=refusal.reason, detail=refusal.detail, figures=figures)


class Writes(_Model):
    """Whether messages are taken."""

    paused: bool
    reason: str | None
    since_ms: int | None
    taken: Annotated[
        bool,
        Field(description="Whether a produce is taken: not paused, room on the disk, no harm."),
    ]
    refused: Annotated[
        PutRefusalView | None, Field(description="Why not, where the store itself refuses.")
    ]

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "paused": False,
                "reason": None,
                "sinceMs": None,
                "taken": True,
                "refused": None,
            }
        }
    )


class DelayLevel(_Model):
    """One level of messageDelayLevel, and its queue in SCHEDULE_TOPIC_XXXX."""

    level: int
    delay: Annotated[str, Field(description="As in messageDelayLevel.")]
    queue_min: int
    queue_max: Annotated[int, Field(description="The next queue offset to be given out.")]
    delivered_up_to: Annotated[int, Field(description="Everything below is done with.")]
    pending: int
    next_due_ms: Annotated[
        int | None, Field(description="When the next message is due; null: none is pending.")
    ]
    waiting: Annotated[
        str | None, Field(description="Why the level stands still although messages are due.")
    ]


class DelayLevelList(_Model):
    levels: list[DelayLevel]

    model_config = ConfigDict(json_schema_extra={"example": examples.DELAYS})


class Segment(_Model):
    """One commit log file."""

    name: str
    offset: Annotated[int, Field(description="Physical offset of its first byte.")]
    size: int
    used: int
    modified_ms: int


class SegmentList(_Model):
    segments: list[Segment]


class ArchiveSpec(_Model):
    """How far an archive is."""

    offset: Annotated[
        int, Field(ge=0, le=INT64_MAX, strict=True, description="Everything below is archived.")
    ]
    place: Annotated[str, Field(min_length=1, max_length=1_000, description="Where.")]

    model_config = ConfigDict(
        json_schema_extra={"example": {"offset": 1073741824, "place": "s3://archive/orders"}},
        extra="forbid",
    )


class ArchiveView(_Model):
    """What retention waits for; null: for no archive."""

    archive: ArchiveMark | None


class PinSpec(_Model):
    """A range of the log to keep, and for how long."""

    from_offset: Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
    to_offset: Annotated[
        int | None,
        Field(ge=1, le=INT64_MAX, strict=True, description="Behind the last byte; null: the end."),
    ] = None
    lease_seconds: Annotated[int, Field(ge=1, le=LEASE_MAX_S, strict=True)] = 300
    why: Annotated[str, Field(max_length=200, description="Shown in the plan.")] = ""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"fromOffset": 0, "leaseSeconds": 300, "why": "nightly backup"}
        },
        extra="forbid",
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> PinSpec:
        if self.to_offset is not None and self.to_offset <= self.from_offset:
            raise ValueError("the range is empty: toOffset must be greater than fromOffset")
        return self


class QuarantineList(_Model):
    """By name."""

    bytes: Annotated[int, Field(description="Of all entries.")]
    entries: list[QuarantineEntry]


class PinList(_Model):
    """By name."""

    pins: list[Pin]
