"""The writer of a store directory: opens it, recovers it, and composes everything else.

Called from the store-writer service, from ``mqstore store dump`` and from tests. One process may
hold a directory open this way (RocketMQ's own ``lock`` file); readers use ``store_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.seams import Seams

if TYPE_CHECKING:
    from mqstore.storage.commit_log import Placement
    from mqstore.storage.config_tables import TopicConfig
    from mqstore.storage.flush import FlushService
    from mqstore.storage.hosts import Host
    from mqstore.storage.lookups import Lookups
    from mqstore.storage.record import Message
    from mqstore.storage.recovery.report import RecoveryReport


class Durability(str, Enum):
    """What an acknowledgement promises."""

    SYNC = "sync"
    """On disk before the reply (group commit)."""
    ASYNC = "async"
    """In the page cache: survives the process, not the machine."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far recovery is: bytes of log scanned, of how many."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a directory is opened: what is no setting of RocketMQ's MessageStoreConfig."""

    store_host: str = "127.0.0.1:10911"
    """``address:port`` written into every record as STOREHOST; stable and unique per shard."""
    shard: str = "0"
    store_id: str | None = None
    """Refuse the directory unless it is this store's (StoreOfAnother)."""
    store_path_commit_log: str | None = None
    """storePathCommitLog: another directory for the log; several are refused."""
    format: StoreFormat | None = None
    """Format of a store that is made new; an existing one keeps its own."""
    create: bool = True
    """Make the store when the directory is empty or missing; else DirectoryNotUsable."""
    services: bool = True
    """False: nothing runs in the background and nothing may be put (dump, verify, dry runs)."""
    adopt_sizes: bool = True
    """Take file sizes from the files of an existing store instead of from ``config``."""
    on_progress: Callable[[Progress], None] | None = None
    on_failure: Callable[[BaseException], None] | None = None
    """Called once, from any thread, when the store fails (StoreFailed): end the process."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A moment's picture of an open store; offsets are physical, in bytes."""

    store_id: str
    shard: str
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


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One commit log file: its name, first physical offset, size, and bytes in use."""

    name: str
    offset: int
    size: int
    used: int
    modified_ms: int


class MessageStore:
    """An open store. Every method may be called from any thread.

    ``put`` and ``put_batch`` block until the asked-for durability; a caller with an event loop
    calls ``append`` (which never waits for the disk) and then ``flush.request(end)``, where
    ``end`` is ``placement.physical_offset + placement.size``.
    """

    config: StoreConfig
    """As opened: sizes are those of the files."""
    format: StoreFormat
    store_id: str
    shard: str
    epoch: int
    host: Host
    """STOREHOST of what is put; a Message's ``store_host`` should be this."""
    recovery: RecoveryReport
    lookups: Lookups
    flush: FlushService

    @classmethod
    def open(
        cls, root: Path, config: StoreConfig, seams: Seams, options: StoreOptions | None = None
    ) -> MessageStore:
        """Lock, check, recover and start.

        Raises StoreLocked, DirectoryNotUsable, StoreOfAnother, StoreUnsupported, StoreDamaged
        (nothing could be opened at all; a store that may only be read opens with
        ``read_only_reason`` set), OSError.
        """
        raise NotImplementedError

    def put(self, message: Message, durability: Durability | None = None) -> Placement:
        """Append one message and wait; default durability follows flushDiskType.

        Raises PutRefused (nothing stored), FlushTimeout (stored, not known to be on disk),
        StoreFailed.
        """
        raise NotImplementedError

    def put_batch(
        self, messages: Sequence[Message], durability: Durability | None = None
    ) -> list[Placement]:
        """As ``put``, for messages of one topic and queue: contiguous, all or none."""
        raise NotImplementedError

    def append(self, message: Message) -> Placement:
        """Append without waiting for the disk; dispatched (readable) before it returns when the
        dispatcher is caught up."""
        raise NotImplementedError

    def append_batch(self, messages: Sequence[Message]) -> list[Placement]:
        raise NotImplementedError

    def topics(self) -> list[TopicConfig]:
        raise NotImplementedError

    def topic(self, name: str) -> TopicConfig:
        """Raises TopicUnknown."""
        raise NotImplementedError

    def create_topic(self, name: str, *, queues: int = 4, perm: int = 6) -> TopicConfig:
        """Create, or change the queue count of, a topic; durable in config/topics.json.

        Raises TopicNameError.
        """
        raise NotImplementedError

    def status(self) -> StoreStatus:
        raise NotImplementedError

    def segments(self) -> list[SegmentInfo]:
        raise NotImplementedError

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing may be put, or None."""
        raise NotImplementedError

    def wait_for_index(self, timeout_s: float | None = None) -> bool:
        """Wait until the index covers the log again (dump does); False when the time is up."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop services, sync everything, write checkpoint and clean-close manifest, remove
        ``abort``, release the lock. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
