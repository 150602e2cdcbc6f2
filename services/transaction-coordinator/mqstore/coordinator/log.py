"""What the coordinator needs of a store: one contiguous append under a fence, reads, offsets.

Two implementations: ``http_log`` over the services' REST API, and one over a MessageStore in the
tests' own process, which the simulation runs on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from mqstore.coordinator.records import Append, Key, Keyed, NewRecord, Page, Placement, Stored
from mqstore.storage.layout import StoreFormat

QueueOffsets = Mapping[tuple[str, int], int]
"""Next offsets of group CID_RMQ_SYS_TRANS, by topic and queue."""

Kinds = Mapping[Key, Set[int]]
"""Transaction types (``TRANSACTION_MASK`` of SYSFLAG) of the records of a topic that have a unique
key; keys without a record are left out."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a takeover found: everything that was ever appended is readable and on disk."""

    store_format: StoreFormat
    host: str
    """``address:port`` of the store, in records of our own."""
    reserved_ms: int
    """fileReservedTime: what is older may be deleted any time."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Physical offsets of the log."""

    flushed: int
    """Everything below it is on disk."""
    end: int


class Log(Protocol):
    """One shard's store, as its coordinator sees it. Used by one thread at a time.

    Every method may raise LogUnavailable (it may have been done) and Fenced.
    """

    def take_over(self) -> Standing:
        """Fence off every other coordinator, and whatever append of our own is still under way;
        then wait until all that was appended can be read and is on disk."""

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        """Append contiguously, all or none, and wait until they can be read and for the store's
        flushDiskType. Raises LogRefused (nothing was stored)."""

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        """Records of a queue from an offset; an empty page for a queue that is not there."""

    def by_key(self, topic: str, key: str) -> Keyed:
        """Records of a topic with that unique key, or among whose keys it is; the newest 64."""

    def kinds(self, keys: Sequence[Key]) -> Kinds:
        """The transaction types of the records under each unique key. Raises NotLoaded while the
        index does not cover the log."""

    def sync(self) -> None:
        """Put on disk all that was appended."""

    def position(self) -> LogPosition:
        """How far the log is now. Raises Reopened: what was read of it may be gone."""

    def offsets(self) -> QueueOffsets:
        """As last saved."""

    def save_offsets(self, offsets: QueueOffsets) -> None:
        """Save what has changed."""


class SoonLog(Protocol):
    """A log to which an event loop appends."""

    @property
    def answers(self) -> int:
        """Number of received answers; it also grows while a long answer is being read."""

    async def append_soon(self, append: Append) -> list[Placement]:
        """Append without blocking the event loop; no other append may run meanwhile.

        Errors as ``Log.append``, and KeysKnown."""


def read_one(log: Log, topic: str, queue_id: int, offset: int) -> Stored | None:
    """The record at exactly that queue offset; None when it is damaged or gone."""
    records = log.read(topic, queue_id, offset, 1).records
    return records[0] if records and records[0].queue_offset == offset else None
