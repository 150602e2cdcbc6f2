"""The state page: the writer's state for its readers, in one shared page of memory.

``store/mqstore/state`` is 4096 bytes, mapped by the writer and, read-only, by any number of other
processes. Every field is an aligned 64-bit word in the machine's own byte order, stored with
release and loaded with acquire order; all of them lie in the first 512 bytes, so that a disk sector
holds a whole page state. The page is never replaced, shortened or synced: any value of it that
reaches the disk was true when it was stored. It does not say whether a writer is alive; the store's
lock does (``FileSystem.is_locked``).

Called from ``message_store`` (writes), ``recovery`` (reads the last run's state), and
``store_reader`` (reads).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from mqstore.storage._kernel import (
    StateWords,
    Word,
    add_u32,
    full_fence,
    futex_wait,
    futex_wake,
    load_u32,
    load_u64,
    store_u64,
)
from mqstore.storage.errors import StoreNotOpen
from mqstore.storage.layout import PAGE_SIZE
from mqstore.storage.metadata.state_snapshot import Health, StateSnapshot
from mqstore.storage.seams import FileSystem, MappedBytes

MAGIC: Final = int.from_bytes(b"MQSTATE\0", "little")
VERSION: Final = 1
_SNAPSHOT_TRIES: Final = 16
_WORD_MASK: Final = (1 << 64) - 1


# Byte offsets of the fields.
_MAGIC: Final = 0
_VERSION: Final = 8
_STORE_ID: Final = 16
_BOOT_ID: Final = 32
_EPOCH: Final = 48
_HEALTH: Final = 56
_RECOVERY_DONE: Final = 64
_RECOVERY_TOTAL: Final = 72
_INDEX_GENERATION: Final = 80
_INDEX_COMPLETE: Final = 88
_CHANGING: Final = 96
"""Not 0 while bytes that readers may read are changed; 0 in pages of earlier releases."""
_LOG_EPOCH: Final = 104
"""The newest epoch of the log, see ``Epochs``; 0 in pages of earlier releases."""
# One cache line for the fields of appends, one for those of flushes, one for waiters.
_MAX: Final = 128
_DISPATCHED: Final = 136
_MIN: Final = 192
_FLUSHED: Final = 200
_FLUSHED_CHECK: Final = 208
"""The watermark with all bits inverted: a damaged watermark must not become a place to cut at."""
_EXPIRED: Final = 216
"""Retention may have unlinked every segment below; synced before it unlinks one."""
_EXPIRED_CHECK: Final = 224
_ARRIVALS: Final = 256
# Moved by the log while readers are bounded (``StatePage.bound_reads``); 0 otherwise.
_LOG_END: Final = 320
_LOG_DISPATCHED: Final = 328
_LOG_ARRIVALS: Final = 336
_CONFIRMED: Final = 384
_IN_SYNC: Final = 392
_LEADER_END: Final = 400
"""Greatest known end of the leader's log, in a store that follows one; else 0."""
_TABLES: Final = 408
"""Number of changes of topics and groups; 0 in pages of earlier releases."""
_BEATS: Final = 416
"""Moved by a writer that serves clients, each second; 0 before, and in other writers."""
_ELECTED: Final = 424
"""1 while another copy takes the lead of the shard when this writer stands still."""


_HEALTH_VALUES: Final = frozenset(Health)


class StatePageReader:
    """Reads a state page. Every method may be called from any thread."""

    def __init__(self, mapped: MappedBytes) -> None:
        self._mapped = mapped
        self._view = mapped.view
        self._epoch = Word(mapped.view, _EPOCH)
        self._min = Word(mapped.view, _MIN)
        self._max = Word(mapped.view, _MAX)
        self._dispatched = Word(mapped.view, _DISPATCHED)
        self._index_complete = Word(mapped.view, _INDEX_COMPLETE)
        self._changing = Word(mapped.view, _CHANGING)
        self._log_end = Word(mapped.view, _LOG_END)
        self._log_dispatched = Word(mapped.view, _LOG_DISPATCHED)

    @classmethod
    def open(cls, files: FileSystem, path: Path) -> StatePageReader:
        """Map an existing page read-only.

        Raises StoreNotOpen with state ``absent`` or ``unsupported``.
        """
        stat = files.stat(path)
        if stat is None or stat.size < PAGE_SIZE:
            raise StoreNotOpen("absent", f"no state page at {path}; start a writer on it once")
        reader = cls(files.map(path, writable=False))
        if reader.is_valid:
            return reader
        is_being_made = reader._load(_MAGIC) == 0
        reader.close()
        if is_being_made:
            raise StoreNotOpen("absent", f"the state page at {path} is not written yet; try again")
        raise StoreNotOpen("unsupported", f"{path} is no state page of version {VERSION}")

    @property
    def is_valid(self) -> bool:
        """Whether the page has our magic and version."""
        return self._load(_MAGIC) == MAGIC and self._load(_VERSION) == VERSION

    @property
    def store_id(self) -> str:
        """32 hexadecimal digits."""
        return self._load_id(_STORE_ID)

    @property
    def boot_id(self) -> str:
        """The machine start in which the page was last opened for writing."""
        return self._load_id(_BOOT_ID)

    @property
    def epoch(self) -> int:
        """Counter that changes whenever bytes that readers may have read could have changed."""
        return self._epoch.value

    @property
    def is_changing(self) -> bool:
        """Whether bytes are being changed, or their writer was killed while it changed them: load
        it after the epoch, and read nothing until it is False."""
        return self._changing.value != 0

    @property
    def health(self) -> Health:
        """The last writer's report on the store."""
        value = self._load(_HEALTH)
        return Health(value) if value in _HEALTH_VALUES else Health.FAILED

    @property
    def bound_words(self) -> tuple[Word, Word, Word, Word, Word, Word, Word]:
        """The words of epoch, minimum, maximum, dispatched offset, index completeness, whether
        bytes change, and the log's end; for the kernel's look-ups."""
        return (
            self._epoch,
            self._min,
            self._max,
            self._dispatched,
            self._index_complete,
            self._changing,
            self._log_end,
        )

    @property
    def min_offset(self) -> int:
        """The first physical offset of the log."""
        return self._min.value

    @property
    def max_offset(self) -> int:
        """The readable end of the log."""
        return self._max.value

    @property
    def log_words(self) -> tuple[Word, Word]:
        """The words of the log's end and its dispatched offset while readers are bounded."""
        return self._log_end, self._log_dispatched

    @property
    def log_end(self) -> int:
        """The end of the log, which is above ``max_offset`` while readers are bounded."""
        return max(self._max.value, self._log_end.value)

    @property
    def confirmed_offset(self) -> int:
        """Physical offset below which every copy in sync has the log; 0 without copies."""
        return self._load(_CONFIRMED)

    @property
    def in_sync(self) -> int:
        """Number of copies in sync, the leader included; 0 without copies."""
        return self._load(_IN_SYNC)

    @property
    def flushed_offset(self) -> int:
        """The durable watermark: every byte below it was synced."""
        return self._load(_FLUSHED)

    @property
    def is_flushed_offset_whole(self) -> bool:
        """Whether the watermark is neither damaged nor torn."""
        return self._load(_FLUSHED_CHECK) == ~self.flushed_offset & _WORD_MASK

    @property
    def expired_below(self) -> int | None:
        """Upper bound of the log's minimum; None without a note, or for a damaged one."""
        offset = self._load(_EXPIRED)
        return offset if self._load(_EXPIRED_CHECK) == ~offset & _WORD_MASK else None

    @property
    def dispatched_offset(self) -> int:
        """Physical offset below which all queue and index entries are in place."""
        return self._dispatched.value

    @property
    def index_generation(self) -> int:
        """Counter of added and removed index files."""
        return self._load(_INDEX_GENERATION)

    @property
    def index_complete(self) -> bool:
        """Whether the index covers all dispatched records."""
        return self._index_complete.value != 0

    @property
    def tables_revision(self) -> int:
        """Counter of changes of topics and groups that are on disk; 0 where the writer counts none.
        Load it before reading them."""
        return self._load(_TABLES)

    @property
    def arrivals(self) -> int:
        """Counter of arrivals. Read it before looking for messages, and pass it to ``wait``."""
        return load_u32(self._view, _ARRIVALS)

    @property
    def beats(self) -> int:
        """Counter that a writer moves each second while it serves clients; 0 before."""
        return self._load(_BEATS)

    @property
    def is_elected(self) -> bool:
        """Whether another copy takes the lead when the writer of this one stands still."""
        return self._load(_ELECTED) != 0

    def snapshot(self) -> StateSnapshot:
        """Read all fields of one epoch.

        Raises StoreNotOpen when the epoch keeps changing (the writer is recovering).
        """
        for _ in range(_SNAPSHOT_TRIES):
            epoch = self.epoch
            if self.is_changing:
                continue
            snapshot = self.read_fields(epoch)
            if self.epoch == epoch:
                return snapshot
        raise StoreNotOpen("recovering", "the writer is recovering; try again")

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Block without the GIL until ``arrivals`` differs from ``seen``; False on a timeout."""
        while self.arrivals == seen:
            if not futex_wait(self._view, _ARRIVALS, seen, timeout_s):
                break
        return self.arrivals != seen

    def close(self) -> None:
        """Unmap the page."""
        self._mapped.unmap()

    def read_fields(self, epoch: int) -> StateSnapshot:
        """Read all fields one after the other."""
        # Dispatched is read before max, min before max: each bound is then at most the later one.
        dispatched, minimum, flushed = self.dispatched_offset, self.min_offset, self.flushed_offset
        return StateSnapshot(
            store_id=self.store_id,
            boot_id=self.boot_id,
            epoch=epoch,
            health=self.health,
            recovery_done=self._load(_RECOVERY_DONE),
            recovery_total=self._load(_RECOVERY_TOTAL),
            min_offset=minimum,
            max_offset=self.max_offset,
            flushed_offset=flushed,
            dispatched_offset=dispatched,
            index_generation=self.index_generation,
            index_complete=self.index_complete,
            arrivals=self.arrivals,
            expired_below=self.expired_below,
            log_end=self.log_end,
            confirmed_offset=self.confirmed_offset,
            in_sync=self.in_sync,
            leader_end=self._load(_LEADER_END),
            log_epoch=self._load(_LOG_EPOCH),
        )

    def _load(self, field: int) -> int:
        return load_u64(self._view, field)

    def _load_id(self, high: int) -> str:
        return f"{self._load(high):016x}{self._load(high + 8):016x}"


class StatePage(StatePageReader):
    """The writer's page; the watermarks of the commit log, the flush and the dispatcher.

    The kernel uses ``words``, which each put moves. One thread at a time may set a field; different
    threads may set different fields. Bytes above a bound may be changed only after that bound was
    lowered in ``changing``; all other bytes that readers may read are changed only in ``changing``.
    So a reader that reads the epoch, then the bounds, copies bytes, and finds the same epoch, has
    copied no byte that changed meanwhile.
    """

    def __init__(self, mapped: MappedBytes) -> None:
        super().__init__(mapped)
        self.words = self._public = StateWords(mapped.view, _MAX, _DISPATCHED, _ARRIVALS)
        """The words that the log moves; ``bound_reads`` replaces them."""
        self._changes = Lock()
        self._bound: int | None = None
        """Readers see nothing beyond; None where they see all."""
        self._publishing = Lock()

    def notify(self, event_fd: int) -> None:
        """Add 1 to an event file descriptor at the next arrival, once. -1: do not, and the
        descriptor of an earlier call may be closed."""
        self._public.notify(event_fd)

    def bound_reads(self) -> None:
        """From now on readers see what ``confirm`` names; at first what they saw before.

        Called once, before recovery. ``words`` then move by themselves what the log has.
        """
        self._bound = self.max_offset
        self._store(_LOG_END, self.max_offset)
        self._store(_LOG_DISPATCHED, self.dispatched_offset)
        self.words = StateWords(self._view, _LOG_END, _LOG_DISPATCHED, _LOG_ARRIVALS)

    def end_recovery(self) -> None:
        """Forget the end of a log whose readers were bounded before and are not any more."""
        if self._bound is None:
            self._store(_LOG_END, 0)

    def confirm(self, offset: int, in_sync: int) -> None:
        """Note the copies in sync, and that all of them have the log up to ``offset``, the end of a
        record. Bounded readers see up to there, and those that wait are woken."""
        self._store(_CONFIRMED, offset)
        self._store(_IN_SYNC, in_sync)
        if self._bound is not None:
            with self._publishing:
                self._bound = max(self._bound, offset)
                self._publish()

    def beat(self, *, elected: bool) -> None:
        """Note that this writer serves clients; readers expect the next call in a second."""
        self._store(_ELECTED, int(elected))
        self._store(_BEATS, self.beats + 1)

    def note_leader_end(self, offset: int) -> None:
        """Note the greatest known end of the log that this one is a copy of."""
        self._store(_LEADER_END, offset)

    def note_tables(self) -> None:
        """Count a change of topics or groups that is on disk. Thread-safe."""
        with self._changes:
            self._store(_TABLES, self.tables_revision + 1)

    def _publish(self) -> None:
        """Move the bounds of readers to what the log has below ``_bound``, the maximum first."""
        assert self._bound is not None
        maximum = min(self._log_end.value, self._bound)
        dispatched = min(self._log_dispatched.value, self._bound)
        if maximum != self.max_offset:
            self._public.set_max(maximum)
        if dispatched != self.dispatched_offset:
            self._public.set_dispatched(dispatched)

    @classmethod
    def create(cls, files: FileSystem, path: Path, store_id: str, boot_id: str) -> StatePage:
        """Open the page for writing, creating it when there is none; health is ``recovering``.

        A page of the same store continues: its offsets stay until they are set, its epoch is one
        higher, and readers that have it mapped see the change. A page of another store, or an
        invalid one, starts again from zeros. Ids are UUID texts. Raises OSError.
        """
        if (stat := files.stat(path)) is None:
            files.create(path, PAGE_SIZE)
            files.sync_directory(path.parent)
        elif stat.size < PAGE_SIZE:
            files.extend(path, PAGE_SIZE)
        # A halt may leave a hole: a store to it on a full disk would kill the process.
        files.reserve(path, 0, PAGE_SIZE)
        page = cls(files.map(path, writable=True))
        page._begin(UUID(store_id), UUID(boot_id))
        return page

    @classmethod
    def reopen(cls, files: FileSystem, path: Path) -> StatePage:
        """Open the page of a store at rest to set single fields; changes nothing.

        Raises OSError.
        """
        files.reserve(path, 0, PAGE_SIZE)
        return cls(files.map(path, writable=True))

    def _begin(self, store_id: UUID, boot_id: UUID) -> None:
        epoch = self.epoch + 1
        goes_on = self.is_valid and self.store_id == store_id.hex
        self._store(_HEALTH, Health.RECOVERING)
        self._store(_CHANGING, 1)
        self._store(_EPOCH, epoch)
        full_fence()
        if not goes_on:
            self._clear()
        elif not self.is_flushed_offset_whole:
            self.set_flushed(0)
        self._store(_INDEX_COMPLETE, 0)
        self.note_tables()
        for field in (_CONFIRMED, _IN_SYNC, _LEADER_END, _BEATS, _ELECTED):
            self._store(field, 0)
        self.set_recovery_progress(0, 0)
        self._store_id(_STORE_ID, store_id)
        self._store_id(_BOOT_ID, boot_id)
        self._store(_VERSION, VERSION)
        self._store(_MAGIC, MAGIC)
        self._store(_CHANGING, 0)

    def _clear(self) -> None:
        for field in (_DISPATCHED, _MAX, _MIN, _INDEX_GENERATION, _LOG_END):
            self._store(field, 0)
        self.set_flushed(0)
        self._store(_EXPIRED, 0)
        self._store(_EXPIRED_CHECK, 0)

    def set_health(self, health: Health) -> None:
        """Set the health."""
        self._store(_HEALTH, health)
        self.wake()

    def set_log_epoch(self, epoch: int) -> None:
        """Set the newest epoch of the log."""
        self._store(_LOG_EPOCH, epoch)

    def set_recovery_progress(self, done: int, total: int) -> None:
        """Set the bytes of log that recovery has read, and their total."""
        self._store(_RECOVERY_TOTAL, total)
        self._store(_RECOVERY_DONE, done)

    def advance_epoch(self) -> int:
        """Advance the epoch, which invalidates everything that readers have read or cached."""
        with self._changes:
            return self._move_epoch()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change bytes that readers may read: a new epoch before and after the block.

        Readers wait meanwhile, so it must be short. One thread at a time.
        """
        with self._changes:
            self._store(_CHANGING, 1)
            self._move_epoch()
            try:
                yield
            finally:
                self._move_epoch()
                self._store(_CHANGING, 0)

    def _move_epoch(self) -> int:
        epoch = self.epoch + 1
        self._store(_EPOCH, epoch)
        full_fence()
        return epoch

    def set_min(self, offset: int) -> None:
        """Set the first physical offset of the log."""
        self._store(_MIN, offset)

    def set_expired(self, offset: int) -> None:
        """Set the offset below which segments may be removed."""
        self._store(_EXPIRED, offset)
        self._store(_EXPIRED_CHECK, ~offset)

    def note_expiry(self, offset: int) -> None:
        """Make durable that segments below ``offset`` are about to be removed. Raises OSError."""
        if self.expired_below == offset:
            return
        self.set_expired(offset)
        self.sync()

    def set_max(self, offset: int) -> None:
        """Set the log's end: every byte below ``offset`` is complete."""
        is_cut = offset < self._log_end.value
        self.words.set_max(offset)
        if self._bound is not None:
            with self._publishing:
                self._bound = min(self._bound, offset) if is_cut else self._bound
                self._publish()

    def set_flushed(self, offset: int) -> None:
        """Move the durable watermark; only after a successful sync of everything below."""
        self._store(_FLUSHED, offset)
        self._store(_FLUSHED_CHECK, ~offset)

    def set_dispatched(self, offset: int) -> None:
        """Move the dispatched offset, after the entries are written, and wake waiting readers."""
        self.words.set_dispatched(offset)
        if self._bound is not None:
            with self._publishing:
                self._publish()

    def set_index_complete(self, complete: bool) -> None:
        """Set whether the index is complete."""
        self._store(_INDEX_COMPLETE, int(complete))

    def bump_index_generation(self) -> None:
        """Count an added or removed index file."""
        self._store(_INDEX_GENERATION, self.index_generation + 1)

    def wake(self) -> None:
        """Count an arrival and wake every waiter of every process."""
        add_u32(self._view, _ARRIVALS, 1)
        futex_wake(self._view, _ARRIVALS)

    def sync(self) -> None:
        """Write the page to disk. Raises OSError."""
        self._mapped.sync()

    def _store(self, field: int, value: int) -> None:
        store_u64(self._view, field, value & _WORD_MASK)

    def _store_id(self, high: int, value: UUID) -> None:
        self._store(high, value.int >> 64)
        self._store(high + 8, value.int & _WORD_MASK)


def read_state(files: FileSystem, path: Path) -> StateSnapshot | None:
    """Read the last writer's state; None without a page of this version.

    For a process that has the lock, or reads a store at rest. A damaged watermark reads as 0: it
    then proves nothing.
    """
    try:
        page = StatePageReader.open(files, path)
    except StoreNotOpen:
        return None
    try:
        left = page.read_fields(page.epoch)
        return left if page.is_flushed_offset_whole else replace(left, flushed_offset=0)
    finally:
        page.close()
