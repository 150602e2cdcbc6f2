"""All index files of a store: writing, publication, and look-ups by key.

For each message, UNIQ_KEY, then each of KEYS, then (5.x) its TAGS are indexed; rollback records are
not. The file is chosen per key, so one message's items may lie in two files. Source: IndexService
of 4.9.7 and 5.4.0; unlike there, an indexed message is never indexed twice.

One thread at a time puts (the dispatcher); any thread may query, flush, and delete old files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage._kernel import IndexWindow
from mqstore.storage.codec import properties
from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.index.file import (
    OFFSET_MAX,
    IndexFile,
    file_size,
    items_start,
    why_misplaced,
    why_untrusted,
)
from mqstore.storage.index.names import name_after, time_name
from mqstore.storage.index.publication import (
    Journal,
    StagedFile,
    index_names,
    prepare,
    put_in_place,
    remove_replaced,
)
from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import sync_directories
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.tables.checkpoint import Checkpoint

KEY_SEPARATOR: Final = "#"
TAGS_TYPE: Final = "T"
KEY_SIZE_MIN: Final = 2
"""Least bytes of the log that an item takes: a key and its separator."""
ROOM_ITEMS: Final = 1 << 14
"""Items whose disk blocks are reserved at a time, ahead of writing."""
TIME_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A path in the index directory that was not loaded, and is left alone."""

    path: Path
    size: int
    why: str


@dataclass(slots=True)
class IndexLoad:
    """The result of ``load``."""

    strays: list[SkippedFile] = field(default_factory=list)
    """Files whose names are not those of index files."""
    dropped: list[SkippedFile] = field(default_factory=list)
    """Index files that cannot be trusted: quarantine them; their records are indexed again."""
    repaired_items: int = 0


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """Candidates of a key query, newest first; hash collisions and duplicates included."""

    offsets: list[int]
    complete: bool
    """False when ``max_count`` limited the candidates."""
    files: int
    last_update_ms: int
    last_update_physical: int


class IndexService:
    """The index files, oldest first. See the module for threads."""

    def __init__(
        self,
        paths: StorePaths,
        config: StoreConfig,
        store_format: StoreFormat,
        seams: Seams,
        *,
        checkpoint: Checkpoint | None = None,
        writable: bool = True,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """``on_change`` is called after a file was added or removed."""
        self.slots = config.max_hash_slot_num
        self.index_num = config.max_index_num
        self.indexes_tags = store_format.indexes_tags
        self.window = IndexWindow()
        self.files: tuple[IndexFile, ...] = ()
        self.is_published = False
        """Whether a rebuild's files replaced the previous ones."""
        self.rebuild_boundary: str | None = None
        """The first file that the running rebuild leaves alone."""
        self._change_lock = Lock()
        """Held to change the list: the dispatcher adds files, retention removes them, a rebuild
        replaces them."""
        self._removal_lock = Lock()
        """Held to unlink files.

        Taken before ``_flush_lock``, which is taken before the other locks.
        """
        self._flush_lock = Lock()
        self._paths = paths
        self._format = store_format
        self._seams = seams
        self._checkpoint = checkpoint
        self._writable = writable
        self._on_change = on_change
        self._last_name = ""
        self._leftover: Path | None = None
        """A file whose creation failed, and that may exist under its name."""
        self._journal: Journal | None = None
        self._full: list[IndexFile] = []
        """Full files that are not synced yet."""
        self._names_due = False
        """Whether names of files may not be durable."""
        self.synced_end = 0
        """Files that end below this physical offset are on disk."""

    # opening ------------------------------------------------------------------------------

    def load(
        self,
        *,
        safe: bool,
        index_ms: int = 0,
        log_end: int | None = None,
        lost: bool = False,
        synced_end: int = 0,
        back: int | None = None,
    ) -> IndexLoad:
        """Map the files that can be trusted; returns the skipped ones.

        After an abnormal end (not ``safe``), files that end at or after ``index_ms``, the
        checkpoint's indexMsgTimestamp, are dropped, nearly as RocketMQ does: a file that ends in
        that very millisecond may be the next one, which was not synced. So are files with a damaged
        header, files with items at or beyond ``log_end``, and all files when some were ``lost``.
        Files that end below the physical offset ``synced_end`` are known to be on disk; if no file
        ends at ``index_ms``, no other one is. Times of files that end at or after ``back``, where
        the clock was first set back, prove nothing.

        A writable index keeps no file behind a dropped one: nothing is indexed again below the end
        of the last file, so the index would have a hole and look complete.
        """
        found = IndexLoad()
        files: list[IndexFile] = []
        opened = [
            (path, size, self._open(path)) for path, size in self._scan(found.strays, found.dropped)
        ]
        # After a clock was set back, and that part of the log expired, the checkpoint has a time
        # that no later file reaches.
        if synced_end and not any(file.header.end_ms == index_ms for _, _, file in opened):
            index_ms = 0
        gap = min((each.path.name for each in found.dropped), default=None)
        for path, size, file in opened:
            self._last_name = max(self._last_name, path.name)
            is_synced = safe or (file.index_count > 1 and file.end_physical < synced_end)
            why = file.damage() or why_untrusted(file, is_synced, index_ms, log_end)
            if why is None and not is_synced and back is not None and file.end_physical >= back:
                why = f"ends at {file.end_physical}, after the clock was set back at {back}"
            if why is None and self._writable:
                why = why_misplaced(file, files[-1:], gap, is_last=file is opened[-1][2])
            if lost:
                why = why or "others of the index are gone, and it is made anew"
            if why is None:
                files.append(file)
            else:
                file.mapped.close()
                found.dropped.append(SkippedFile(path, size, why))
                gap = min(gap or path.name, path.name)
        self.files = tuple(files)
        self.synced_end = self.end_physical
        if self.files and self._writable:
            found.repaired_items = self.files[-1].repair_tail()
        self._attach()
        return found

    def refresh(self, *, remap: bool = False) -> bool:
        """For read-only use: find added and removed files; returns whether there were any."""
        known = {} if remap else {file.path: file for file in self.files}
        before = self.files
        scanned = self._scan([], [])
        opened = (known.get(path) or self._open_if_there(path) for path, _ in scanned)
        self.files = tuple(file for file in opened if file is not None and file.damage() is None)
        for file in set(before).difference(self.files):
            file.mapped.close()
        return self.files != before

    def missing(self) -> tuple[str, ...]:
        """Names of files that another process removed or damaged."""
        with self._removal_lock:
            return self.missing_at_swap()

    def missing_at_swap(self) -> tuple[str, ...]:
        """As ``missing``, for the thread that swaps the files."""
        return tuple(file.path.name for file in self.files if self._is_gone(file))

    def _is_gone(self, file: IndexFile) -> bool:
        stat = self._seams.files.stat(file.path)
        return stat is None or stat.size != file.mapped.size or file.damage() is not None

    @property
    def end_physical(self) -> int:
        """The last indexed message's offset; 0 also when there is none."""
        return self.files[-1].end_physical if self.files else 0

    @property
    def is_empty(self) -> bool:
        """Whether no message is indexed."""
        return not any(file.index_count > 1 for file in self.files)

    # writing ------------------------------------------------------------------------------

    def put(self, record: Record) -> int:
        """Index one message; returns the number of added items. Raises OSError when the disk is
        full.

        A message below ``end_physical`` is ignored; of the message at it, only the missing items
        are added.
        """
        self.ensure_file()
        offset = record.physical_offset
        if offset < self.end_physical:
            return 0
        if record.sys_flag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_ROLLBACK:
            return 0
        keys = self.keys_of(record)[self._items_of(offset) :]
        for key in keys:
            self._put_key(index_hash(key), offset, record.store_timestamp_ms)
        if keys:
            self._attach()
        return len(keys)

    def keys_of(self, record: Record) -> list[str]:
        """The whole keys of a message, in the order of their items."""
        return index_keys_of(record, tags=self.indexes_tags)

    def ensure_file(self) -> IndexFile:
        """The file of the next item; a new one when there is none or it is full."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        return self._roll(last, self._next_name())

    def make_room(self) -> None:
        """Extend the window by more disk blocks, or by the next file."""
        self.ensure_file()
        self._attach()

    def roll(self, room: int) -> None:
        """Begin a new file at a rebuild's boundary, with ``room`` free names before its own.

        An empty file with such a name is reused. Called by the dispatcher. Raises OSError.
        """
        last = self.files[-1] if self.files else None
        before = self.files[-2].path.name if len(self.files) > 1 else ""
        if (
            last is None
            or last.index_count > 1
            or self._is_gone(last)
            or name_after(before, room) >= last.path.name
        ):
            name = max(name_after(self._last_name, room), self._next_name())
            self._roll(last, name, is_durable=True)
        self.rebuild_boundary = self.files[-1].path.name

    def room_for(self, log_bytes: int) -> int:
        """The number of names that any rebuild of so many bytes of log needs at most."""
        return log_bytes // KEY_SIZE_MIN // (self.index_num - 1) + 2

    def publish(
        self,
        staged: Sequence[StagedFile],
        slots: int,
        index_num: int,
        store_id: str,
        end_ms: int,
        swapping: AbstractContextManager[None] | None = None,
    ) -> Journal:
        """Replace all files by a rebuild's, except those from ``rebuild_boundary`` on.

        ``end_ms`` is the store time of their newest item. No thread puts into a replaced file while
        in ``swapping``. Raises StagingDamaged, OSError; when ``is_publishing`` stays true, call it
        again.
        """
        if self._journal is None:
            kept = self.rebuild_boundary
            replaced = [name for name in self._names() if kept is None or name < kept]
            journal = Journal(
                store_id=store_id,
                hash_slots=slots,
                index_num=index_num,
                files=tuple(staged),
                names=tuple(self._names_for(len(staged), replaced, kept)),
                replaced=tuple(replaced),
                index_ms=end_ms if kept is None else max(end_ms, self._index_ms),
            )
            prepare(self._seams.files, self._paths, journal)
            self._journal = journal
        return self._finish(self._journal, swapping or nullcontext())

    @property
    def is_publishing(self) -> bool:
        """Whether a journal is not completed."""
        return self._journal is not None

    def _finish(self, journal: Journal, swapping: AbstractContextManager[None]) -> Journal:
        files = self._seams.files
        put_in_place(files, self._paths, journal)
        with self._removal_lock:
            with self._flush_lock, swapping:
                self._swap(journal)
            self._note_change()
            remove_replaced(files, self._paths, journal, self._required_checkpoint)
            self.is_published, self.rebuild_boundary, self._journal = True, None, None
            self._note_change()
        return journal

    def _swap(self, journal: Journal) -> None:
        """Replace the files in memory; later look-ups of this process use the new ones."""
        self.slots, self.index_num = journal.hash_slots, journal.index_num
        there = {file.path.name: file for file in self.files}
        new = [there.get(name) or self._open(self._paths.index / name) for name in journal.names]
        with self._change_lock:
            kept = (
                []
                if self.rebuild_boundary is None
                else [f for n, f in there.items() if n >= self.rebuild_boundary]
            )
            self.files = (*new, *kept)
        self._full = [file for file in self._full if file in self.files]
        self.synced_end = new[-1].end_physical if new else 0
        for file in set(there.values()).difference(self.files):
            file.mapped.close()
        checkpoint = self._required_checkpoint
        is_later = kept and checkpoint.index_ms > journal.index_ms
        checkpoint.index_ms = checkpoint.index_ms if is_later else journal.index_ms
        self._attach()

    @property
    def _index_ms(self) -> int:
        return self._required_checkpoint.index_ms

    @property
    def _required_checkpoint(self) -> Checkpoint:
        if self._checkpoint is None:
            raise ValueError("an index without a checkpoint cannot be published")
        return self._checkpoint

    def delete_before(self, min_physical: int) -> int:
        """Unlink files that end below the log's minimum, never the last; returns their number.

        Any thread, one at a time. Raises OSError.
        """
        with self._removal_lock:
            with self._change_lock:
                ends = [file.end_physical for file in self.files[:-1]]
                expired = next((n for n, end in enumerate(ends) if end >= min_physical), len(ends))
                gone, self.files = self.files[:expired], self.files[expired:]
            for file in gone:
                file.mapped.destroy(self._seams.clock.monotonic(), 0)
            if gone:
                self._seams.files.sync_directory(self._paths.index)
                self._note_change()
            return expired

    def flush(self, *, everything: bool = False) -> int:
        """Sync full files, then move the checkpoint's index time; returns the number of synced
        files.

        ``everything`` (a clean close) also syncs the current file. Raises StoreFailed, OSError.
        """
        with self._flush_lock:
            return self._flush(everything)

    def _flush(self, everything: bool) -> int:
        flushed = 0
        if self._names_due and (everything or self._full):
            self._names_due = False
            sync_directories(self._seams.files, (self._paths.index, self._paths.index.parent))
        while self._full:
            file = self._full[0]
            file.flush()
            self._full.pop(0)
            flushed += 1
            self.synced_end = file.end_physical
            if self._checkpoint is not None:
                # Never back with the clock: a broker would drop later files, and leave a hole.
                ended_ms = file.header.end_ms
                self._checkpoint.index_ms = max(self._checkpoint.index_ms, ended_ms)
                self._checkpoint.flush()
        if everything and self.files:
            if self._format is StoreFormat.V5_X:
                self.files[-1].count_from_one()
            self.files[-1].flush()
            flushed += 1
        return flushed

    def close(self) -> None:
        """Unmap all files; flush before."""
        self.window.attach(None, 0, 0)
        for file in self.files:
            file.mapped.close()

    # look-ups ----------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int = 0, end_ms: int = TIME_MAX
    ) -> IndexAnswer:
        """At most ``max_count`` candidates, as RocketMQ's queryOffset finds them."""
        files = self.files
        found = list(islice(self._walk(files, topic, key, begin_ms, end_ms), max_count + 1))
        last = files[-1].header if files else None
        return IndexAnswer(
            offsets=found[:max_count],
            complete=len(found) <= max_count,
            files=len(files),
            last_update_ms=last.end_ms if last else 0,
            last_update_physical=last.end_physical if last else 0,
        )

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, below: int
    ) -> Iterator[int]:
        """Yield the physical offsets of the key's hash below ``below``, newest first.

        An offset comes at most once from each file. The caller compares topic, key and time (whole
        seconds here) with the record.
        """
        previous = None
        for offset in self._walk(self.files, topic, key, begin_ms, end_ms, below):
            if offset < below and offset != previous:
                yield offset
            previous = offset

    def _walk(
        self,
        files: tuple[IndexFile, ...],
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        below: int = OFFSET_MAX,
    ) -> Iterator[int]:
        key_hash = index_hash(topic + KEY_SEPARATOR + key)
        for file in reversed(files):
            if file.overlaps(begin_ms, end_ms):
                yield from file.find(key_hash, begin_ms, end_ms, below)

    # files --------------------------------------------------------------------------------

    def _scan(
        self, strays: list[SkippedFile], dropped: list[SkippedFile]
    ) -> list[tuple[Path, int]]:
        expected = file_size(self.slots, self.index_num)
        found = []
        for name in self._seams.files.list(self._paths.index):
            path = self._paths.index / name
            stat = self._seams.files.stat(path)
            if stat is None:
                continue
            if stat.is_directory or not (name.isascii() and name.isdigit()):
                strays.append(SkippedFile(path, stat.size, "no name of an index file"))
            elif stat.size != expected:
                why = (
                    f"has {stat.size} bytes where maxHashSlotNum {self.slots} and maxIndexNum "
                    f"{self.index_num} make {expected}"
                )
                dropped.append(SkippedFile(path, stat.size, why))
            else:
                found.append((path, stat.size))
        return found

    def _open(self, path: Path) -> IndexFile:
        mapped = MappedFile.open(self._seams.files, path, writable=self._writable)
        return IndexFile(mapped, self.slots, self.index_num)

    def _open_if_there(self, path: Path) -> IndexFile | None:
        try:
            return self._open(path)
        except FileNotFoundError:  # removed after it was listed
            return None

    def _put_key(self, key_hash: int, offset: int, store_ms: int) -> None:
        if not self.ensure_file().put(key_hash, offset, store_ms):
            raise AssertionError(
                f"index file {self.files[-1].path.name} is full and was not rolled"
            )

    def _items_of(self, physical_offset: int) -> int:
        """The number of items that this message, the last indexed one, has already."""
        total = 0
        for file in reversed(self.files):
            count, all_of_it = file.trailing_items_of(physical_offset)
            total += count
            if not all_of_it:
                break
        return total

    def _roll(self, full: IndexFile | None, name: str, *, is_durable: bool = False) -> IndexFile:
        file = self._create(name, is_durable)
        if full is not None:
            header = full.header
            file.carry(header.end_physical, header.end_ms)
            self._full.append(full)
        with self._change_lock:
            self.files = (*self.files, file)
        self._attach()
        self._note_change()
        return file

    def _create(self, name: str, is_durable: bool) -> IndexFile:
        """Make a file that is durable at once, or with the first flush that counts on it."""
        for directory in (self._paths.index, self._paths.queue_staging):
            if self._seams.files.stat(directory) is None:
                self._seams.files.make_directories(directory, sync=is_durable)
        path = self._paths.index / name
        if self._leftover is not None and self._seams.files.stat(self._leftover) is not None:
            self._seams.files.unlink(self._leftover)
        self._leftover = path
        mapped = MappedFile.create(
            self._seams.files,
            path,
            file_size(self.slots, self.index_num),
            staged=self._paths.queue_staging / f"index-{name}",
            # Slots are written in any order; items one after another, reserved in steps.
            reserve=items_start(self.slots),
            is_durable=is_durable,
        )
        self._leftover = None
        self._names_due = self._names_due or not is_durable
        self._last_name = name
        return IndexFile(mapped, self.slots, self.index_num)

    def _names(self) -> list[str]:
        return index_names(self._seams.files, self._paths)

    def _names_for(self, count: int, replaced: Sequence[str], kept: str | None) -> list[str]:
        """Names after all replaced files and before the one that is kept."""
        last = max(replaced, default="")
        if kept is None:
            self._last_name = max(self._last_name, last)
            return [self._take_name() for _ in range(count)]
        names = [name_after(last, number) for number in range(1, count + 1)]
        if names and names[-1] >= kept:
            raise ValueError(f"{count} index files have no names before {kept}")
        return names

    def _take_name(self) -> str:
        self._last_name = self._next_name()
        return self._last_name

    def _next_name(self) -> str:
        """The time of creation, local, in ms; unique, and later than every name before."""
        name = time_name(self._seams.clock.now_ms())
        return name if name > self._last_name else name_after(self._last_name)

    def _attach(self) -> None:
        """Point the window at the last file, up to its reserved disk blocks."""
        if not self.files or not self._writable:
            self.window.attach(None, 0, 0)
            return
        last = self.files[-1]
        self.window.attach(last.view, self.slots, last.make_room(ROOM_ITEMS))

    def _note_change(self) -> None:
        if self._on_change is not None:
            with self._change_lock:
                self._on_change()


def index_keys_of(record: Record, *, tags: bool) -> list[str]:
    """The whole keys of a message, in the order of their items; with its TAGS in 5.x."""
    topic = record.topic
    named = properties.index_keys(record.uniq_key, record.keys)
    keys = [topic + KEY_SEPARATOR + key for key in named]
    if tags and record.tags:
        keys.append(KEY_SEPARATOR.join((topic, TAGS_TYPE, record.tags)))
    return keys
