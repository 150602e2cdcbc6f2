"""What recovery is going to do and what it did: values that print as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.storage.lost_data import Loss

MAGIC: Final = "mqstore-recovery"
VERSION: Final = 1
LISTED_MAX: Final = 1_000
"""Damaged ranges, stray files and lowered offsets listed one by one; beyond it they are only
counted."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class StartReason(StrEnum):
    """Why the log is read from where it is."""

    NEW_STORE = "new store"
    CLEAN_CLOSE = "clean close of ours, unchanged since"
    WATERMARK = "durable watermark of ours"
    CHECKPOINT = "not closed cleanly: last segment that the checkpoint covers"
    FIRST_SEGMENT = "not closed cleanly: no segment that the checkpoint covers"
    ACCEPTED_LOSS = "a loss of durable data was accepted: last segment before it"
    LAST_THREE = "closed cleanly by a broker: last three segments"


class DamagedRange(_Value):
    """A stretch of log that is no whole record, with whole newer ones behind: it stays, or a
    tombstone takes its place where the store is opened to append."""

    offset: int
    length: int
    defect: str


class DamagedBlock(_Value):
    """Bytes of log that are not those that were written, though all records there are whole: those
    that the damage may touch cannot be read; nothing is changed."""

    offset: int
    length: int
    """All of the damage lies within."""


class ExtendSegment(_Value):
    """A last segment that is too short: a copy is kept, then it gets its full length."""

    kind: Literal["extend-segment"] = "extend-segment"
    name: str
    length: int
    size: int


class CutTail(_Value):
    """Bytes behind the log's end in its own segment: kept in quarantine, then zeroed."""

    kind: Literal["cut-tail"] = "cut-tail"
    segment: str
    position: int
    """In the file."""
    offset: int
    length: int
    """Up to and with the last byte that is not zero."""
    reason: str


class RemoveSegment(_Value):
    """A segment behind the log's end: kept in quarantine unless all zero, then unlinked."""

    kind: Literal["remove-segment"] = "remove-segment"
    name: str
    offset: int
    length: int
    """Bytes that are kept; 0 for a segment that was only made ahead of need."""
    reason: str


class PlaceTombstone(_Value):
    """An unreadable stretch: kept in quarantine, then one valid record of its size."""

    kind: Literal["place-tombstone"] = "place-tombstone"
    offset: int
    length: int
    defect: str
    topic: str | None
    """None where nothing is known: the record is of rollback type and in no queue."""
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp_ms: int
    keeps_header: bool = False
    """Hosts, flags and properties of the original could be read and stay."""


class CloseSegment(_Value):
    """An unreadable stretch up to its segment's end: kept in quarantine, then a blank record."""

    kind: Literal["close-segment"] = "close-segment"
    offset: int
    length: int
    defect: str


class RestoreBytes(_Value):
    """One word that changed on the disk: kept in quarantine, then it is again what was written."""

    kind: Literal["restore-bytes"] = "restore-bytes"
    offset: int
    length: int
    content: str
    """The written bytes, hexadecimal; the checksum of the block proves them."""
    record_offset: int
    """Physical offset of the record that contains them."""


class RefitQueueFile(_Value):
    """A queue file of a wrong length: a copy is kept, then a file of the right length with the
    same first bytes takes its name; entries that it lacks are made again from the log."""

    kind: Literal["refit-queue-file"] = "refit-queue-file"
    topic: str
    queue_id: int
    name: str
    length: int
    size: int


class RewriteRange(_Value):
    """Bytes above the watermark that stay: written again and synced before anything is promised."""

    kind: Literal["rewrite-range"] = "rewrite-range"
    offset: int
    length: int


class TruncateQueues(_Value):
    """Queue entries of records at and above ``offset`` go: those of records that are gone are kept
    in quarantine, the others are made again from the log."""

    kind: Literal["truncate-queues"] = "truncate-queues"
    offset: int


class SetQueuesAside(_Value):
    """There is no log at all: what the queues held goes to quarantine."""

    kind: Literal["set-queues-aside"] = "set-queues-aside"
    reason: str


Repair = RestoreBytes | PlaceTombstone | CloseSegment

Action = Annotated[
    ExtendSegment
    | CutTail
    | RemoveSegment
    | RestoreBytes
    | PlaceTombstone
    | CloseSegment
    | RewriteRange
    | RefitQueueFile
    | TruncateQueues
    | SetQueuesAside,
    Field(discriminator="kind"),
]


class RepairPlan(_Value):
    """The damage below the durable watermark, and the actions of a repair. Offsets are physical, in
    bytes."""

    start: int
    stop: int
    scanned_bytes: int
    records: int
    """Whole ones."""
    damaged: tuple[DamagedRange, ...] = ()
    """Where no whole record is: each gets a tombstone."""
    damaged_count: int = 0
    damaged_blocks: tuple[DamagedBlock, ...] = ()
    """Blocks that have changed though all records there are whole: which one, no check says. They
    stay as they are."""
    damaged_block_count: int = 0
    actions: tuple[Annotated[Repair, Field(discriminator="kind")], ...] = ()

    @property
    def tombstone_bytes(self) -> int:
        return sum(a.length for a in self.actions if not isinstance(a, RestoreBytes))


class RepairReport(_Value):
    """A repair's plan, and what came of it."""

    plan: RepairPlan
    done: bool
    """False for a dry run, and where nothing had to be done."""
    quarantined: tuple[str, ...] = ()
    """Names of entries in ``store/mqstore/quarantine``."""


class RecoveryPlan(_Value):
    """What was found, and what will be done about it. Offsets are physical, in bytes."""

    magic: Literal["mqstore-recovery"] = MAGIC
    version: int = VERSION
    path: Literal["normal", "abnormal"]
    start: int
    start_reason: StartReason
    watermark: int
    """Everything below is durable and is left as it is."""
    min_offset: int
    max_offset: int
    records: int
    """Whole ones, from ``start`` on."""
    scanned_bytes: int
    last_store_timestamp_ms: int
    """Of the last whole record seen, or 0."""
    repeated_queue_offsets: int
    """Whole records whose queue offset an earlier one has, with newer ones behind."""
    damaged: tuple[DamagedRange, ...] = ()
    damaged_count: int = 0
    damaged_blocks: tuple[DamagedBlock, ...] = ()
    damaged_block_count: int = 0
    strays: tuple[str, ...] = ()
    """Files that are no part of the store; left alone."""
    dispatch_from: int
    """Queue entries of everything below are in place."""
    dispatch_reason: str
    actions: tuple[Action, ...] = ()
    read_only: str | None = None
    """Why nothing may be written; no action is taken then."""
    loss: Loss | None = None
    """Durable data that is missing."""

    @property
    def cut_bytes(self) -> int:
        """Bytes taken out of the log, from the first to the last that was not zero."""
        return sum(a.length for a in self.actions if isinstance(a, CutTail | RemoveSegment))


class LoweredOffset(_Value):
    """An offset that was behind its queue's end, and was lowered to that end: messages that get the
    queue offsets between would have been skipped."""

    group: str | None = None
    """None: delivery of delayed messages."""
    topic: str
    queue_id: int
    before: int
    after: int


class RecoveryReport(_Value):
    """The plan, and what came of it."""

    plan: RecoveryPlan
    quarantined: tuple[str, ...] = ()
    """Names of entries in ``store/mqstore/quarantine``."""
    dispatched_records: int = 0
    dispatch_skipped: int = 0
    """Stretches of log that dispatch had to leave out; see the writer's log."""
    dispatch_lost_bytes: int = 0
    index_files_dropped: tuple[str, ...] = ()
    index_from: int = 0
    """The index is made again from here on, in the background where it is behind."""
    lowered_offsets: tuple[LoweredOffset, ...] = ()
    lowered_offset_count: int = 0
    accepted_loss: Loss | None = None
    """Durable data that was missing, whose loss an operator had accepted."""
    odd: tuple[str, ...] = ()
    """What else was not as a store's files should be, and what was done about it."""
    finished_at_ms: int = 0
    duration_ms: int = 0
