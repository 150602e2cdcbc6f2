"""What the services answer, as the client gives it. Unknown fields are kept out of the way."""

from __future__ import annotations

import base64
from typing import Any, Literal

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.wire.shards import ShardEntry, Shards

Durability = Literal["sync", "async"]
Hidden = Literal["delayed", "half"]
"""Messages that stand elsewhere until they are delivered or decided."""


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class NewMessage(BaseModel):
    """A message to store. ``body`` is bytes or text (stored as UTF-8)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: bytes | str = b""
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    queue_id: int | None = None
    flag: int = 0
    delay_level: int = 0
    """0: at once; else a level of the store's messageDelayLevel."""
    uniq_key: str | None = None

    def as_json(self) -> dict[str, object]:
        """The request's form, with the body's checksum; what was not given is left out."""
        if isinstance(self.body, str):
            body = self.body.encode()
            members: dict[str, object] = {"body": self.body}
        else:
            body = self.body
            members = {"bodyBase64": base64.b64encode(body).decode()}
        members["crc32c"] = crc32c(body)
        optional = {
            "tags": self.tags,
            "keys": list(self.keys),
            "properties": self.properties,
            "queueId": self.queue_id,
            "flag": self.flag,
            "delayLevel": self.delay_level,
            "uniqKey": self.uniq_key,
        }
        return members | {k: v for k, v in optional.items() if v or v == 0}


class Placed(Model):
    """Where a message was stored. Offsets are physical or of the queue, as their names say."""

    offset_msg_id: str
    uniq_key: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    shard: int
    repeat: bool = False
    """Stored before, under this unique key."""


class Produced(Model):
    messages: tuple[Placed, ...]


class Appended(Model):
    """What an internal append stored, in the order of the request."""

    records: tuple[Placed, ...]
    readable: bool


class TransactionKinds(Model):
    """For each key of the request the transaction types of its records; ``complete`` unless the
    index does not cover the log."""

    kinds: tuple[tuple[int, ...], ...]
    complete: bool


class Fence(Model):
    """The lowest epoch that may append under a name."""

    name: str
    epoch: int


class Topic(Model):
    topic: str
    queues: int
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str = "SINGLE_TAG"
    attributes: dict[str, str] = Field(default_factory=dict)
    shards: Shards | None = None


class TopicDeletion(Model):
    """What goes with a topic, or, as ``dry_run``, would go."""

    topic: str
    queues: int
    messages: int
    groups: tuple[str, ...]
    dry_run: bool
    shards: Shards | None = None


class Topics(Model):
    topics: tuple[Topic, ...]


class Store(Model):
    """A moment's picture of a store; offsets are physical, in bytes."""

    store_id: str
    shard: int
    epoch: int
    format: str
    health: str
    root: str
    commit_log: str
    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
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
    index_offset: int
    hash_slots: int | None = None
    """Of an index file; None by a writer that does not tell yet."""
    index_num: int | None = None
    flush_behind: int
    dispatch_behind: int
    index_behind: int
    index_trouble: str | None = None
    """Why keys may be missed until the index is rebuilt."""
    damaged_stretches: int
    shards: tuple[ShardEntry, ...] = ()


class Flushed(Model):
    """Everything below ``durable_offset``, which is physical, is on disk."""

    durable_offset: int


class Writes(Model):
    """Whether messages are taken (None: a release that did not tell); if not, why, since when."""

    paused: bool
    reason: str | None
    since_ms: int | None
    taken: bool | None = None
    refused: dict[str, Any] | None = None
    """``reason``, ``detail`` and ``figures`` where the store refuses messages."""


class Recovery(BaseModel):
    """The recovery report; its fields are those of the service's OpenAPI document."""

    model_config = ConfigDict(extra="allow", frozen=True)

    plan: dict[str, Any]


class DelayLevel(Model):
    """One delay level and its queue in SCHEDULE_TOPIC_XXXX."""

    level: int
    delay: str
    queue_min: int
    queue_max: int
    delivered_up_to: int
    pending: int
    next_due_ms: int | None
    waiting: str | None


class DelayLevels(Model):
    levels: tuple[DelayLevel, ...]


class Segment(Model):
    name: str
    offset: int
    size: int
    used: int
    modified_ms: int


class Segments(Model):
    segments: tuple[Segment, ...]


class ScrubFinding(Model):
    """Bytes of the log that are not as they were written, and what they are of, where that is
    known."""

    offset: int
    length: int
    found_at_ms: int
    field: str | None = None
    record_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class LogRepair(Model):
    """A place of the log that a repair changed; ``quarantined`` names the damaged bytes."""

    offset: int
    length: int
    kind: str
    """restore-bytes, place-tombstone or close-segment."""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    quarantined: str
    repaired_at_ms: int


class RepairReport(Model):
    """The report of a repair of the log; its fields are those of the OpenAPI document."""

    plan: dict[str, Any]
    done: bool
    """False for a dry run, and where nothing had to be done."""
    quarantined: tuple[str, ...]


class Scrub(Model):
    """How far the log was compared with its block checksums; ``position`` is None between two
    passes."""

    position: int | None
    began_at_ms: int
    checked_bytes: int
    last_pass_ended_at_ms: int | None
    finding_count: int
    findings: tuple[ScrubFinding, ...]
    repair_count: int = 0
    tombstone_count: int = 0
    repairs: tuple[LogRepair, ...] = ()


class Retention(Model):
    """What would be deleted, when and why; its parts are those of the OpenAPI document."""

    made_ms: int
    rule: dict[str, Any]
    triggers: tuple[str, ...]
    next_hour_ms: int
    puts_refused: bool
    puts_refused_why: str | None = None
    holds_honoured: bool
    volumes: tuple[dict[str, Any], ...]
    holds: tuple[dict[str, Any], ...]
    segments: tuple[dict[str, Any], ...]
    bytes_to_go: int


class ExpiryReport(Model):
    """The last expiry report's summary, whose parts are those of the OpenAPI document; None before
    the first one."""

    report: dict[str, Any] | None


class ArchiveMark(Model):
    """How far an archive is, in physical offsets; times in ms."""

    offset: int
    place: str
    since_ms: int
    marked_ms: int


class Archive(Model):
    """What retention waits for; None: for no archive."""

    archive: ArchiveMark | None


class Pin(Model):
    """A lease on a range of the log."""

    name: str
    from_offset: int
    to_offset: int | None
    why: str
    created_ms: int
    expires_ms: int


class Pins(Model):
    pins: tuple[Pin, ...]


class Nothing(BaseModel):
    """An answer without content."""


class Download(BaseModel):
    """Bytes as they were sent: a body, or a part of the log."""

    model_config = ConfigDict(frozen=True)

    content: bytes
    total: int
    """Bytes of the whole that ``content`` is a part of."""
    tag: str | None = None
    """ETag: parts with the same one fit together."""


class Health(BaseModel):
    """What a probe answers, also with 503."""

    model_config = ConfigDict(extra="allow", frozen=True)

    status: str
    detail: str = ""
    stage: str = ""
    """Of the start: what is being done, and how much of it."""
    done: int = 0
    total: int = 0
