"""The store that store-writer has open: its state, and whether it takes messages."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import MappingReply, NewerFlag, NewerInteger, Reply, Request
from mqstore.wire.examples import stores as examples
from mqstore.wire.operation import Nothing, Operation, Role, Target
from mqstore.wire.parameters import Parameters
from mqstore.wire.shards import ShardEntry


class Store(Reply):
    """The state of the store at one moment. Offsets are physical, in bytes."""

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
    queues: Annotated[
        int, Field(description="Queues in use: a queue that never had a message has no file.")
    ]
    index_files: int
    index_complete: bool
    disk_total: int
    disk_used: int
    disk_free: int
    read_only_reason: str | None
    index_offset: Annotated[int, Field(description="Everything below is indexed.")]
    hash_slots: Annotated[NewerInteger, Field(description="Of an index file: maxHashSlotNum.")] = (
        None
    )
    index_num: Annotated[NewerInteger, Field(description="Items of one: maxIndexNum.")] = None
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
        tuple[ShardEntry, ...],
        Field(description="The configured shards; empty without a list."),
    ] = ()


class LongOperation(Reply, title="Operation"):
    """A long operation of the store, with its progress."""

    name: Annotated[str, Field(description="opening or index.")]
    stage: str
    done: Annotated[int, Field(description="Bytes.")]
    total: int
    percent: int
    started_ms: int
    ended_ms: Annotated[int | None, Field(description="null: it runs.")]


class Operations(Reply, title="OperationList"):
    """Long operations, the newest first."""

    operations: tuple[LongOperation, ...]


class FlushReply(Reply, title="Flushed"):
    """The part of the log that is on disk."""

    durable_offset: Annotated[
        int, Field(description="Physical: everything below is on disk.", examples=[1048576])
    ]


class WritesSpec(Request):
    """Pauses or resumes writes."""

    paused: Annotated[bool, Field(strict=True)]
    reason: Annotated[
        str, Field(max_length=200, description="Reason that clients get while writes are paused.")
    ] = ""

    model_config = ConfigDict(
        json_schema_extra={"example": {"paused": False, "reason": "moving to another volume"}},
    )


class PutRefusal(MappingReply, title="PutRefusalView"):
    """Why messages are rejected."""

    reason: Annotated[
        str,
        Field(
            description="read-only, failed, closing, paused, disk-full (a ratio), no-room, "
            "too-many-files, disk-error or slow-disk."
        ),
    ]
    detail: str
    figures: Annotated[dict[str, int | float | str], Field(description="Bytes and percent.")]


class Writes(Reply):
    """Whether messages are accepted."""

    paused: bool
    reason: str | None
    since_ms: int | None
    taken: Annotated[
        NewerFlag,
        Field(description="Whether a produce is accepted: not paused, and none of `refused`."),
    ] = None
    refused: Annotated[
        PutRefusal | None, Field(description="Why the store itself rejects messages.")
    ] = None

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


class DelayLevel(Reply):
    """One level of messageDelayLevel, and its queue in SCHEDULE_TOPIC_XXXX."""

    level: int
    delay: Annotated[str, Field(description="As in messageDelayLevel.")]
    queue_min: int
    queue_max: Annotated[int, Field(description="The next queue offset to be given out.")]
    delivered_up_to: Annotated[int, Field(description="Everything below is delivered.")]
    pending: int
    next_due_ms: Annotated[
        int | None, Field(description="When the next message is due; null: none is pending.")
    ]
    waiting: Annotated[
        str | None, Field(description="Why messages that are due are not delivered.")
    ]


class TimedMessages(Reply):
    """Messages that wait for a time (`deliverAt`, `delayS`), in rmq_sys_wheel_timer."""

    pending: int
    next_due_ms: Annotated[
        int | None, Field(description="When the next message is due; null: none is pending.")
    ]
    waiting: Annotated[
        str | None, Field(description="Why messages that are due are not delivered.")
    ]


class DelayLevels(Reply, title="DelayLevelList"):
    """The delay levels, ascending, and the messages that wait for a time."""

    levels: tuple[DelayLevel, ...]
    timed: TimedMessages

    model_config = ConfigDict(json_schema_extra={"example": examples.DELAYS})


class Segment(Reply):
    """One commit log file."""

    name: str
    offset: Annotated[int, Field(description="Physical offset of its first byte.")]
    size: int
    used: int
    modified_ms: int


class Segments(Reply, title="SegmentList"):
    """The files of the commit log, oldest first."""

    segments: tuple[Segment, ...]


class Recovery(Reply):
    """The recovery report; its fields are those of the service's OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    plan: dict[str, Any]


class ScrubFinding(Reply, title="Finding"):
    """A damaged range of the log, with the record and queue entry of the bytes, if known."""

    offset: int
    length: int
    found_at_ms: int
    field: str | None = None
    record_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class LogRepair(Reply, title="Repaired"):
    """A range of the log that a repair changed; ``quarantined`` names the entry with the bytes."""

    offset: int
    length: int
    kind: str
    """restore-bytes, fetch-bytes, place-tombstone or close-segment."""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    replica: str | None = None
    """The replica that had the bytes."""
    quarantined: str
    repaired_at_ms: int


class RepairReport(Reply):
    """The report of a repair of the log; its fields are those of the OpenAPI document."""

    plan: dict[str, Any]
    done: bool
    """False for a dry run, and where nothing had to be done."""
    quarantined: tuple[str, ...]


class Scrub(Reply, title="ScrubProgress"):
    """The progress of the comparison of the log with its block checksums, and its findings.

    ``position`` is None between two passes.
    """

    position: int | None
    began_at_ms: int
    checked_bytes: int
    last_pass_ended_at_ms: int | None
    finding_count: int
    findings: tuple[ScrubFinding, ...]
    repair_count: int = 0
    tombstone_count: int = 0
    repairs: tuple[LogRepair, ...] = ()


class QuarantineEntry(Reply):
    """An entry of the quarantine: bytes that a recovery or repair removed."""

    magic: str
    version: int
    name: str
    source: Annotated[
        str,
        Field(
            description="The file the bytes come from, relative to the store where it is inside."
        ),
    ]
    position: Annotated[int, Field(description="Of the first byte in that file.")]
    length: int
    crc32c: Annotated[int | None, Field(description="null for a file that was moved as it was.")]
    reason: str
    kept_at_ms: int


class Quarantine(Reply, title="QuarantineList"):
    """The entries of the quarantine, by name."""

    bytes: Annotated[int, Field(description="Of all entries.")]
    entries: tuple[QuarantineEntry, ...]


_WRITES: Final = "/v1/store/writes"
_SCRUB: Final = "/v1/store/scrub"
_QUARANTINE: Final = "/v1/store/quarantine"
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One event; `data` is JSON with `kind`, `atMs` and what belongs to the kind.",
    "required": ["id", "event", "data"],
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}

STORE: Final = Operation(
    name="store",
    targets=(Target.WRITER,),
    path="/v1/store",
    role=Role.CONSUME,
    summary="The store's bounds, format and health",
    tag="store",
    reply=Store,
)
RECOVERY: Final = Operation(
    name="recovery",
    targets=(Target.WRITER,),
    path="/v1/store/recovery",
    role=Role.CONSUME,
    summary="What recovery found and did",
    tag="store",
    reply=Recovery,
)
DELAYS: Final = Operation(
    name="delays",
    targets=(Target.WRITER,),
    path="/v1/store/delays",
    role=Role.CONSUME,
    summary="Delayed messages, by level",
    tag="store",
    reply=DelayLevels,
)
SEGMENTS: Final = Operation(
    name="segments",
    targets=(Target.WRITER,),
    path="/v1/segments",
    role=Role.CONSUME,
    summary="The commit log's files",
    tag="store",
    reply=Segments,
)
FLUSH: Final = Operation(
    name="flush",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path="/v1/store:flush",
    role=Role.ADMIN,
    summary="Bring everything to disk",
    tag="store",
    reply=FlushReply,
    problems=(problems.FLUSH_TIMEOUT, problems.STORE_FAILED),
)
WRITES: Final = Operation(
    name="writes",
    targets=(Target.WRITER,),
    path=_WRITES,
    role=Role.CONSUME,
    summary="Whether messages are taken",
    tag="store",
    reply=Writes,
)
PUT_WRITES: Final = Operation(
    name="put_writes",
    targets=(Target.WRITER,),
    method="PUT",
    path=_WRITES,
    role=Role.ADMIN,
    summary="Pause writes, or let them go on",
    tag="store",
    request=WritesSpec,
    reply=Writes,
    problems=problems.WITH_BODY,
)
SCRUB: Final = Operation(
    name="progress",
    targets=(Target.WRITER,),
    path=_SCRUB,
    role=Role.CONSUME,
    summary="What the disk has changed, and how far the look at it is",
    tag="store",
    reply=Scrub,
    example=examples.SCRUB,
)
RUN_SCRUB: Final = Operation(
    name="run",
    targets=(Target.WRITER,),
    method="POST",
    path=_SCRUB + ":run",
    role=Role.ADMIN,
    summary="Look now",
    tag="store",
    reply=Scrub,
    example=examples.SCRUB,
    status=202,
    problems=(problems.STORE_READ_ONLY,),
)


class RepairParameters(Parameters):
    """Whether the log is repaired, or only the plan shown."""

    dry_run: Annotated[bool, Field(description="Only return the plan; change nothing.")] = False


REPAIR: Final = Operation(
    name="repair",
    targets=(Target.WRITER,),
    method="POST",
    path=_SCRUB + ":repair",
    role=Role.ADMIN,
    summary="Repair the log",
    tag="store",
    query=RepairParameters,
    reply=RepairReport,
    example=examples.REPAIR,
    problems=(problems.STORE_READ_ONLY, problems.STORE_FAILED, problems.REPAIR_REFUSED),
)
QUARANTINE: Final = Operation(
    name="quarantine",
    targets=(Target.WRITER,),
    path=_QUARANTINE,
    role=Role.CONSUME,
    summary="Bytes that recoveries and repairs set aside",
    tag="store",
    reply=Quarantine,
    example=examples.QUARANTINE,
)
REMOVE_QUARANTINED: Final = Operation(
    name="remove_quarantined",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_QUARANTINE + "/{name}",
    role=Role.ADMIN,
    summary="Remove an entry of the quarantine",
    tag="store",
    reply=Nothing,
    status=204,
    problems=(problems.QUARANTINE_ENTRY_UNKNOWN,),
)


class EventsParameters(Parameters):
    """The end of a stream."""

    seconds: Annotated[
        float | None,
        Field(
            ge=0,
            le=86_400,
            description="End the stream after this many seconds; 0: after the kept events.",
        ),
    ] = None


EVENTS: Final = Operation(
    name="events",
    targets=(Target.WRITER,),
    path="/v1/events",
    role=Role.CONSUME,
    summary="What happens in the store, as server-sent events",
    tag="store",
    query=EventsParameters,
    reply=Nothing,
    contents={
        200: (
            "Events, one after the other, until the client ends the connection.",
            {"text/event-stream": {"schema": _EVENT, "example": examples.EVENT}},
        )
    },
)
OPERATIONS: Final = Operation(
    name="operations",
    targets=(Target.WRITER,),
    path="/v1/operations",
    role=Role.CONSUME,
    summary="What takes long: running, and ended last",
    tag="store",
    reply=Operations,
)
