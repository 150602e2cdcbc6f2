"""Every error of the storage library.

::

    StorageError
    ├── RecordError                a stretch of log that is no whole record; one class per defect
    │   ├── RecordTruncated
    │   ├── RecordMagicUnknown
    │   ├── RecordSizeWrong
    │   ├── RecordLengthsDisagree
    │   ├── RecordMisplaced
    │   ├── RecordHostInvalid
    │   ├── RecordTopicInvalid
    │   ├── RecordPropertiesMalformed
    │   ├── RecordBodyCorrupt
    │   ├── RecordCrcMismatch      5.x ``__CRC32#``
    │   ├── RecordBlockCorrupt     our block checksum: bytes of it are not those that were written
    │   └── RecordTombstone        stands where an unreadable record was
    ├── PutRefused                 nothing was stored; one class per reason of RocketMQ
    │   ├── MessageTooLarge, PropertiesTooLong, TopicTooLong, MessageInvalid
    │   ├── PageCacheBusy, StoreNotWritable, SegmentCreationFailed, LmqQueuesExceeded
    │   ├── UniqueKeyTaken, OriginalsUnread
    │   ├── DiskFull               a StoreNotWritable: diskSpaceWarningLevelRatio is exceeded
    ├── FilePending                nothing was stored yet: a file is to be made before
    ├── FlushTimeout               stored, but not known to be on disk in time
    ├── StoreFailed                a failed sync or lost disk: this process must not go on
    ├── StoreLocked, StoreOfAnother, StoreUnsupported, StoreDamaged, StoreNotOpen
    ├── ConfigTableError, CheckpointError, MessageIdError, TopicNameError, PropertyError
    ├── GroupNameError, GroupDisabled, TopicConfigError, OffsetRefused, ReceiptInvalid
    ├── TopicNotReadable, TopicNotWritable
    ├── GroupOrdered, GroupShared, MemberUnknown, MembersFull, EpochStale, EpochNotNewer
    ├── LimitReached               a setting allows no further topic, queue or group
    ├── QueryError                 OffsetOutOfRange, RecordExpired, QueueUnknown, TopicUnknown,
    │                              KeyUnknown, CursorError, FilterError, PinUnknown,
    │                              QuarantineEntryUnknown, GroupUnknown,
    │                              SubscriptionUnknown, SegmentUnknown, SegmentExpired;
    │                              OffsetInsideRecord is an OffsetOutOfRange
    ├── TransactionError           TransactionsNotLoaded, TransactionUnknown, TransactionGone,
    │                              TransactionDecided
    ├── BodyNotInflatable          a compressed body that cannot be inflated within its bound
    ├── PinRefused, ArchiveRefused, LeaderLogRefused, QueuesIncomplete
    ├── IndexRebuildRunning, IndexRebuildUnknown, IndexRebuildRefused, IndexRebuildInvalid
    ├── StagingDamaged, StagingFull
    ├── RepairRefused              the log's damaged bytes cannot be kept: nothing was changed
    ├── DataMissing                durable data is absent: the store may only be read
    ├── LossNotAccepted            an acceptance of lost data that does not fit what is lost
    └── DirectoryNotUsable
        └── DiskRefuses            the disk's own error: a later opening may succeed

Used by all. Each message says what was wrong and what to do, lower case, no final period.
"""

# ruff: noqa: F403, F405 -- the errors of records are names of this module too

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mqstore.storage.record_errors import *

if TYPE_CHECKING:
    from mqstore.storage.lost_data import Loss


class PutRefused(StorageError):
    """The store refused a put and stored nothing.

    ``status`` is the name of RocketMQ's PutMessageStatus for the same reason.
    """

    status: ClassVar[str] = "UNKNOWN_ERROR"


class MessageTooLarge(PutRefused):
    """Body over maxMessageSize, or a record that no segment can hold."""

    status = "MESSAGE_ILLEGAL"


class MessageInvalid(PutRefused):
    """A field that cannot be stored or read back as given."""

    status = "MESSAGE_ILLEGAL"


class TopicTooLong(PutRefused):
    """The topic's name has more bytes than a record can hold."""

    status = "MESSAGE_ILLEGAL"


class PropertiesTooLong(PutRefused):
    """The properties have more bytes than a record can hold."""

    status = "PROPERTIES_SIZE_EXCEEDED"


class PageCacheBusy(PutRefused):
    """A put has waited for a segment for longer than osPageCacheBusyTimeOutMills."""

    status = "OS_PAGECACHE_BUSY"


class StoreNotWritable(PutRefused):
    """``reason`` says why: closing, read-only, follower, failed, or disk-full (``DiskFull``)."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DiskFull(StoreNotWritable):
    """A volume is fuller than diskSpaceWarningLevelRatio; ``numbers`` are in bytes and percent."""

    def __init__(self, detail: str, numbers: Mapping[str, int | float | str] | None = None) -> None:
        super().__init__("disk-full", detail)
        self.numbers = dict(numbers or {})


class Lack(StrEnum):
    """Why a put cannot get the file that it needs."""

    NO_ROOM = "no-room"
    """The volume has not as many free bytes, or a quota is reached."""
    TOO_MANY_FILES = "too-many-files"
    """The process, or the system, may open no more files."""
    DISK_ERROR = "disk-error"
    """The disk refused, with an I/O error for example."""
    TIME = "slow-disk"
    """The file is being made, or a buffer for it is about to be free."""


class SegmentCreationFailed(PutRefused):
    """A put needs a file that could not be made; ``numbers`` are in bytes."""

    status = "CREATE_MAPEDFILE_FAILED"

    def __init__(
        self,
        detail: str,
        lack: Lack = Lack.TIME,
        numbers: Mapping[str, int | float | str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.lack = lack
        self.numbers = dict(numbers or {})

    @property
    def reason(self) -> str:
        """The value of ``lack``, as ``PutRefusal`` shows it."""
        return self.lack.value


class UniqueKeyTaken(PutRefused):
    """Another message of the topic was put with this unique key a short time ago."""

    status = "MESSAGE_ILLEGAL"


class OriginalsUnread(PutRefused):
    """Nothing was stored: read ``DeduplicatedPuts.originals`` first, which takes a while."""


class LmqQueuesExceeded(PutRefused):
    """A multi-dispatch record would make a light message queue beyond maxLmqConsumeQueueNum."""

    status = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


class FilePending(StorageError):
    """A put stored nothing because it needs a file that is not made yet: ``make`` it, and retry.

    Raised only by a store whose puts do not wait (``StoreOptions.waits_for_files``).

    ``make`` blocks, in any thread, and raises SegmentCreationFailed; one call serves all that
    wait for the same ``path``.
    """

    def __init__(self, path: Path, make: Callable[[], None]) -> None:
        super().__init__(f"{path} is not made yet; put again once it is")
        self.path = path
        self.make = make


class TransactionError(StorageError):
    """Base of what can go wrong with a transaction; nothing was stored."""


class TransactionsNotLoaded(TransactionError):
    """Half messages are still being read, or the index lacks some: a later attempt may succeed."""


class TransactionUnknown(TransactionError):
    """The store has no half message of the transaction."""


class TransactionGone(TransactionError):
    """A half message is damaged, or retention deleted it: it can only be rolled back."""


class TransactionDecided(TransactionError):
    """The transaction was decided otherwise before."""

    def __init__(
        self, message: str, decision: str, decided_at_ms: int | None, why: str, end: int
    ) -> None:
        super().__init__(message)
        self.end = end
        """A physical offset; the decision is in the log below it. Another request may have made it
        just now: wait for the log's durability up to there before replying."""
        self.decision = decision
        """"commit", "rollback" or "set-aside"."""
        self.decided_at_ms = decided_at_ms
        """None where a broker decided it."""
        self.why = why


class FlushTimeout(StorageError):
    """The message is stored and readable, but was not synced within syncFlushTimeout."""


class StoreFailed(StorageError):
    """A sync failed or the disk is lost: nothing is acknowledged any more by this process."""


class StoreLocked(StorageError):
    """Another process (ours or a real broker) holds the store's ``lock``."""


class StoreOfAnother(StorageError):
    """The volume belongs to another store or shard."""


class StoreUnsupported(StorageError):
    """A kind of store that we name and refuse (several commit log directories, RocksDB queues…)."""


class StoreDamaged(StorageError):
    """Damage that must not be repaired without a person; the store may still open read-only."""


class StagingDamaged(StorageError):
    """Files that were staged by an index rebuild are not what was written; nothing is published."""


class IndexRebuildRunning(StorageError):
    """Another rebuild of the index runs; ``running`` has its owner and the end of its lease."""

    def __init__(self, detail: str, running: Mapping[str, int | str]) -> None:
        super().__init__(detail)
        self.running = dict(running)


class IndexRebuildUnknown(StorageError):
    """The index rebuild was never begun, or has ended: published, given up, or expired."""


class IndexRebuildRefused(StorageError):
    """An index rebuild is refused now, or beside a writer; ``detail`` states the reason."""


class IndexRebuildInvalid(StorageError):
    """A plan or items that do not belong to this rebuild; none of them is used."""


class StagingFull(StorageError):
    """The staged files would fill the disk too far; ``numbers`` are in bytes and percent."""

    def __init__(self, detail: str, numbers: Mapping[str, int | float | str] | None = None) -> None:
        super().__init__(detail)
        self.numbers = dict(numbers or {})


class LeaderLogRefused(StorageError):
    """A follower refuses its leader, or bytes of it; ``reason`` names why in one word or two."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class QueuesIncomplete(StorageError):
    """A deletion of a topic was withdrawn: the next opening makes its queues again."""


class StoreNotOpen(StorageError):
    """No writer has prepared this directory, or it is recovering; ``state`` says which."""

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(detail)
        self.state = state


class DirectoryNotUsable(StorageError):
    """A directory that cannot be created, read or written."""


class DiskRefuses(DirectoryNotUsable):
    """The disk refused an opening (I/O error, no room, read-only); a later one may succeed."""


class RepairRefused(StorageError):
    """Damaged bytes of the log cannot be kept in quarantine, or replaced now; nothing changed."""


class DataMissing(StorageError):
    """The directory lacks data that was on disk. Nothing was changed; the store may be opened for
    reading (``StoreOptions.in_place``), and for writing once the loss is accepted."""

    def __init__(self, message: str, loss: Loss) -> None:
        super().__init__(message)
        self.loss = loss


class LossNotAccepted(StorageError):
    """No durable data is missing, or the missing data differs from the loss to accept."""


class ConfigTableError(StorageError):
    """A ``config/*.json`` table that can be read neither from its file nor from its ``.bak``."""


class CheckpointError(StorageError):
    """A ``checkpoint`` of the wrong size."""


class MessageIdError(StorageError):
    """Text that is no offset message id."""


class TopicNameError(StorageError):
    """A name that RocketMQ would refuse, or that is no safe file name."""


class GroupNameError(StorageError):
    """A name that no consumer group may have, or a group that is RocketMQ's own."""


class TopicConfigError(StorageError):
    """Queue counts, permissions or attributes that no topic can have."""


class TopicNotReadable(StorageError):
    """The topic's perm has no read bit: consumers receive nothing of it."""


class TopicNotWritable(StorageError):
    """The topic's perm has no write bit, or it has no queue to write to."""


class GroupDisabled(StorageError):
    """The group's consumeEnable is false, or an administrator has forbidden it the topic."""


class GroupOrdered(StorageError):
    """The group has members: only they receive."""


class GroupShared(StorageError):
    """Messages of the group are leased to shared consumers: it cannot have members yet."""


class MemberUnknown(StorageError):
    """The caller is no member of the ordered group, or its session ended."""


class MembersFull(StorageError):
    """An ordered group has as many members or queues as it may have."""


class LimitReached(StorageError):
    """A setting allows no further topic, queue or group."""

    def __init__(self, what: str, setting: str, limit: int) -> None:
        super().__init__(
            f"{what}, and {setting} allows {limit}; delete what is not used, or raise {setting}"
        )
        self.setting = setting
        """Its name, as RocketMQ writes names."""
        self.limit = limit


class EpochNotNewer(StorageError):
    """An epoch of the log cannot begin: it, or a later one, has begun before."""


class EpochStale(StorageError):
    """The queue of an ordered group is held under another epoch."""


class ReceiptInvalid(StorageError):
    """A text that is no receipt of a leased message."""


class DeadLettersFull(StorageError):
    """Too many separate ranges of dead letters were resent or purged."""


class OffsetRefused(StorageError):
    """A consumer offset beyond its queue's end, or before the committed one."""


class PropertyError(StorageError):
    """A property that cannot be stored (separator or NUL inside, reserved name, bad encoding)."""


class BodyNotInflatable(StorageError):
    """A body that is said to be compressed and cannot be inflated, or only beyond a bound."""


class ArchiveRefused(StorageError):
    """The archive offset is invalid, or retention waits for another archive."""


class PinRefused(StorageError):
    """A pin on segments that were deleted, or one pin above the limit."""


class QueryError(StorageError):
    """Base of the errors of look-ups."""


class TopicUnknown(QueryError):
    """The store has no topic of this name."""


class QueueUnknown(QueryError):
    """The topic has no queue of this id."""


class GroupUnknown(QueryError):
    """The store has no consumer group of this name."""


class SubscriptionUnknown(QueryError):
    """The group has no live subscription of this topic."""


class OffsetOutOfRange(QueryError):
    """The offset is beyond the end of the log or queue, or no record begins there."""


class OffsetInsideRecord(OffsetOutOfRange):
    """The offset is inside the record that begins at ``holder``."""

    def __init__(self, offset: int, holder: int) -> None:
        super().__init__(f"no record begins at offset {offset}: it lies inside the one at {holder}")
        self.holder = holder


class RecordExpired(QueryError):
    """Below the log's minimum offset: retention deleted it."""


class KeyUnknown(QueryError):
    """No record has that unique key; ``complete`` says whether all of the log was looked at."""

    def __init__(self, why: str, *, complete: bool) -> None:
        super().__init__(why)
        self.complete = complete


class PinUnknown(QueryError):
    """No pin has that name, or it has ended."""


class QuarantineEntryUnknown(QueryError):
    """The quarantine has no entry of that name."""


class CursorError(QueryError):
    """Text that is no cursor of this query."""


class FilterError(QueryError):
    """A filter expression that cannot be parsed."""

    def __init__(self, why: str, column: int | None = None) -> None:
        """``column`` counts characters from 1; None where it is not known."""
        super().__init__(why if column is None else f"filter expression, column {column}: {why}")
        self.column = column


class SegmentUnknown(QueryError):
    """No file of the log has that name, or nothing of it may be read yet."""


class SegmentExpired(QueryError):
    """Retention deleted the file."""
