"""Plans and reports of recovery: values that print as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from mqstore.storage.lost_data import Loss
from mqstore.storage.metadata.sealed_json import Value

MAGIC: Final = "mqstore-recovery"
VERSION: Final = 1
LISTED_MAX: Final = 1_000
"""Maximum number of listed damaged ranges, stray files and lowered offsets; further ones are
counted."""


class StartReason(StrEnum):
    """Why the log is read from this offset."""

    NEW_STORE = "new store"
    CLEAN_CLOSE = "clean close of ours, unchanged since"
    WATERMARK = "durable watermark of ours"
    CHECKPOINT = "not closed cleanly: last segment that the checkpoint covers"
    FIRST_SEGMENT = "not closed cleanly: no segment that the checkpoint covers"
    ACCEPTED_LOSS = "a loss of durable data was accepted: last segment before it"
    LAST_THREE = "closed cleanly by a broker: last three segments"


class DamagedRange(Value):
    """A stretch of log without whole records, followed by whole newer ones: it stays, or a
    tombstone replaces it when the store is opened to append."""

    offset: int
    length: int
    defect: str


class DamagedBlock(Value):
    """Changed bytes of a block whose records are all whole: records that the damage may touch
    cannot be read; nothing is changed."""

    offset: int
    length: int
    """All of the damage lies within."""


class ExtendSegment(Value):
    """Gives a last segment that is too short its full length; a copy is kept."""

    kind: Literal["extend-segment"] = "extend-segment"
    name: str
    length: int
    size: int


class CutTail(Value):
    """Zeroes the bytes after the log's end in its own segment, which are kept in quarantine."""

    kind: Literal["cut-tail"] = "cut-tail"
    segment: str
    position: int
    """Position in the file."""
    offset: int
    length: int
    """Up to and including the last non-zero byte."""
    reason: str


class RemoveSegment(Value):
    """Unlinks a segment after the log's end, which is kept in quarantine unless it is all zero."""

    kind: Literal["remove-segment"] = "remove-segment"
    name: str
    offset: int
    length: int
    """Bytes that are kept; 0 for a segment that was only made ahead of need."""
    reason: str


class PlaceTombstone(Value):
    """Replaces an unreadable stretch, which is kept in quarantine, by one valid record of its
    size."""

    kind: Literal["place-tombstone"] = "place-tombstone"
    offset: int
    length: int
    defect: str
    topic: str | None
    """None when it is unknown: the record is of rollback type and in no queue."""
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp_ms: int
    keeps_header: bool = False
    """Whether hosts, flags and properties of the original could be read and stay."""


class CloseSegment(Value):
    """Replaces an unreadable stretch up to its segment's end, which is kept in quarantine, by a
    blank record."""

    kind: Literal["close-segment"] = "close-segment"
    offset: int
    length: int
    defect: str


class RestoreBytes(Value):
    """Restores one word that changed on the disk; the damaged bytes are kept in quarantine."""

    kind: Literal["restore-bytes"] = "restore-bytes"
    offset: int
    length: int
    content: str
    """The original bytes, hexadecimal; the checksum of the block proves them."""
    record_offset: int
    """Physical offset of the record that contains them."""


class FetchBytes(RestoreBytes):
    """Restores whole records from a replica; the damaged bytes are kept in quarantine."""

    kind: Literal["fetch-bytes"] = "fetch-bytes"  # type: ignore[assignment]
    content: str = Field(exclude=True, repr=False)
    """The replica's bytes, hexadecimal."""
    replica: str
    """The name of the replica."""


class RefitQueueFile(Value):
    """Replaces a queue file of a wrong length by one of the right length with the same first bytes;
    a copy is kept. Its missing entries are made again from the log."""

    kind: Literal["refit-queue-file"] = "refit-queue-file"
    topic: str
    queue_id: int
    name: str
    length: int
    size: int


class RewriteRange(Value):
    """Writes and syncs bytes above the watermark again, before anything is acknowledged."""

    kind: Literal["rewrite-range"] = "rewrite-range"
    offset: int
    length: int


class TruncateQueues(Value):
    """Drops the queue entries of records at and above ``offset``: those of cut records are kept in
    quarantine, the others are made again from the log."""

    kind: Literal["truncate-queues"] = "truncate-queues"
    offset: int


class SetQueuesAside(Value):
    """Quarantines the queues when there is no log at all."""

    kind: Literal["set-queues-aside"] = "set-queues-aside"
    reason: str


Repair = RestoreBytes | FetchBytes | PlaceTombstone | CloseSegment

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


class RepairPlan(Value):
    """The damage below the durable watermark, and the actions of a repair.

    Offsets are physical, in bytes.
    """

    start: int
    stop: int
    scanned_bytes: int
    records: int
    """Number of whole records."""
    damaged: tuple[DamagedRange, ...] = ()
    """Stretches without a whole record: each gets a tombstone."""
    damaged_count: int = 0
    damaged_blocks: tuple[DamagedBlock, ...] = ()
    """Changed blocks in which all records are whole, so that the damaged one cannot be named.

    They stay.
    """
    damaged_block_count: int = 0
    actions: tuple[Annotated[Repair, Field(discriminator="kind")], ...] = ()

    @property
    def tombstone_bytes(self) -> int:
        """Bytes of all tombstones."""
        return sum(a.length for a in self.actions if not isinstance(a, RestoreBytes))


class RepairReport(Value):
    """A repair's plan and result."""

    plan: RepairPlan
    done: bool
    """False for a dry run, and when nothing had to be done."""
    quarantined: tuple[str, ...] = ()
    """Names of entries in ``store/mqstore/quarantine``."""


class RecoveryPlan(Value):
    """The state of the store, and the actions on it. Offsets are physical, in bytes."""

    magic: Literal["mqstore-recovery"] = MAGIC
    version: int = VERSION
    path: Literal["normal", "abnormal"]
    start: int
    start_reason: StartReason
    watermark: int
    """Everything below is durable and is left unchanged."""
    min_offset: int
    max_offset: int
    records: int
    """Number of whole records from ``start`` on."""
    scanned_bytes: int
    last_store_timestamp_ms: int
    """STORETIMESTAMP of the last whole record, or 0."""
    repeated_queue_offsets: int
    """Whole records whose queue offset an earlier one has, followed by newer ones."""
    damaged: tuple[DamagedRange, ...] = ()
    damaged_count: int = 0
    damaged_blocks: tuple[DamagedBlock, ...] = ()
    damaged_block_count: int = 0
    strays: tuple[str, ...] = ()
    """Files that are no part of the store; left alone."""
    dispatch_from: int
    """Physical offset below which all queue entries are in place."""
    dispatch_reason: str
    actions: tuple[Action, ...] = ()
    read_only: str | None = None
    """Why nothing may be written; no action is taken then."""
    loss: Loss | None = None
    """Missing durable data."""

    @property
    def cut_bytes(self) -> int:
        """Bytes cut from the log, from the first to the last non-zero one."""
        return sum(a.length for a in self.actions if isinstance(a, CutTail | RemoveSegment))

    @property
    def first_given_up(self) -> int | None:
        """Offset of the first stretch of the log that is replaced without its content, or None."""
        given_up = (a.offset for a in self.actions if isinstance(a, PlaceTombstone | CloseSegment))
        return min(given_up, default=None)


class LoweredOffset(Value):
    """An offset that was behind its queue's end, and was lowered to that end: messages with the
    queue offsets between would have been skipped."""

    group: str | None = None
    """None for the delivery of delayed messages."""
    topic: str
    queue_id: int
    before: int
    after: int


class RecoveryReport(Value):
    """A recovery's plan and result."""

    plan: RecoveryPlan
    quarantined: tuple[str, ...] = ()
    """Names of entries in ``store/mqstore/quarantine``."""
    dispatched_records: int = 0
    dispatch_skipped: int = 0
    """Stretches of log that dispatch had to skip; see the writer's log."""
    dispatch_lost_bytes: int = 0
    index_files_dropped: tuple[str, ...] = ()
    index_from: int = 0
    """The index is made again from this offset on, in the background where it is behind."""
    lowered_offsets: tuple[LoweredOffset, ...] = ()
    lowered_offset_count: int = 0
    accepted_loss: Loss | None = None
    """Missing durable data whose loss an operator had accepted."""
    odd: tuple[str, ...] = ()
    """Other irregularities of the store's files, and the actions on them."""
    finished_at_ms: int = 0
    duration_ms: int = 0
