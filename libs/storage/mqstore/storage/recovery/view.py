"""The files of a store at rest, read-only, for recovery.

Nothing here writes or locks. Segments are mapped one at a time, so memory stays bounded.
"""

from __future__ import annotations

import os
import struct
import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import (
    CHECKPOINT_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PRE_BLANK_SIZE,
    QUEUE_ENTRY_SIZE,
    StoreFormat,
)
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.manifest import QueueState
from mqstore.storage.metadata.truncation import Truncation
from mqstore.storage.paths import StorePaths, segment_offset
from mqstore.storage.queues.next_named import NextNamed
from mqstore.storage.queues.queue_holes import runs_without_size
from mqstore.storage.queues.store_times import store_time_at
from mqstore.storage.seams import FileSystem, MappedBytes
from mqstore.storage.system.open_map import open_map
from mqstore.storage.system.sparse import SMALL_CHUNK, NextData, last_nonzero

if TYPE_CHECKING:
    from mqstore.storage.lost_data import Loss

_CHECKPOINT: Final = struct.Struct(">3q")
_ENTRY: Final = struct.Struct(">qiq")
_MAPPED_MAX: Final = 1_024
"""Maximum number of queues of a table that have a file mapped: a process has 65,530 mappings."""
_MAGIC_POSITION: Final = 4
_FIRST_RECORD_NEEDS: Final = 84
"""Bytes up to the end of STORETIMESTAMP, with an IPv6 born host, rounded up."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the commit log; ``length`` is its actual length."""

    path: Path
    base: int
    length: int

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.base + self.length


@dataclass(frozen=True, slots=True)
class Segments:
    """The files of ``commitlog/``, sorted by kind."""

    usable: tuple[Segment, ...]
    """In order of their offsets; the last one may be shorter than the others."""
    misfits: tuple[Segment, ...]
    """Segments of a wrong length inside the log."""
    strays: tuple[str, ...]
    empty: tuple[Segment, ...] = ()
    """Segments of no bytes at the log's end: a halt came while they were made."""

    def at(self, offset: int) -> Segment | None:
        """The usable segment that holds a physical offset."""
        place = bisect_right(self.usable, offset, key=attrgetter("base")) - 1
        return self.usable[place] if place >= 0 and offset < self.usable[place].end else None


class QueueMisfit(NamedTuple):
    """A ConsumeQueue file of a wrong length."""

    topic: str
    queue_id: int
    name: str
    length: int


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """The times of RocketMQ's checkpoint, in ms; 0 when unknown."""

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store at rest, with the facts about its last writer."""

    files: FileSystem
    paths: StorePaths
    config: StoreConfig
    store_format: StoreFormat
    segments: Segments
    abort: bool
    """Whether the last writer did not close."""
    checkpoint: CheckpointTimes
    watermark: int | None = None
    """The durable watermark, when the state page can be trusted."""
    known_queues: tuple[QueueState, ...] | None = None
    """The trusted entries of each queue."""
    derived_offset: int = 0
    """The offset below which all trusted entries are in place."""
    blocks: BlockFiles | None = None
    """Checksums of the log, when they are of the present log."""
    loss: Loss | None = None
    """Missing durable data: nothing may be written."""
    truncation: Truncation | None = None
    """A diverged tail, to be cut off."""
    recover_from: int | None = None
    """After an accepted loss: the segment from which the log is read again."""

    @classmethod
    def of(
        cls,
        files: FileSystem,
        paths: StorePaths,
        config: StoreConfig,
        store_format: StoreFormat,
        segments: Segments | None = None,
        blocks: BlockFiles | None = None,
    ) -> StoreView:
        """The files as they are now, without what the last writer noted."""
        size = config.mapped_file_size_commit_log
        return cls(
            files=files,
            paths=paths,
            config=config,
            store_format=store_format,
            segments=find_segments(files, paths, size) if segments is None else segments,
            abort=files.stat(paths.abort) is not None,
            checkpoint=read_checkpoint(files, paths.checkpoint),
            blocks=blocks,
        )

    @property
    def min_offset(self) -> int:
        """The first physical offset."""
        return self.segments.usable[0].base if self.segments.usable else 0

    @contextmanager
    def map_segment(self, segment: Segment) -> Iterator[memoryview]:
        """Map one segment while the block runs."""
        if segment.length == 0:
            yield memoryview(b"")
            return
        with open_map(self.files, segment.path) as mapped:
            yield mapped.view

    def next_data(self, segment: Segment) -> NextData:
        """The ``NextData`` of a segment."""
        return partial(self.files.next_data, segment.path)

    def first_store_timestamp(self, segment: Segment) -> int | None:
        """STORETIMESTAMP of a segment's first record; None when none begins there."""
        with self.map_segment(segment) as view:
            if len(view) < _FIRST_RECORD_NEEDS:
                return None
            (magic,) = struct.unpack_from(">I", view, _MAGIC_POSITION)
            if magic not in (MAGIC_V1, MAGIC_V2):
                return None
            return store_time_at(view, 0)

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        """The files of one queue."""
        directory = self.paths.consume_queue / topic / str(queue_id)
        return QueueFiles(self.files, directory, self.config.queue_file_size)

    def queues(
        self, names: Iterable[tuple[str, int]] | None = None
    ) -> Iterator[tuple[str, int, QueueFiles]]:
        """The queues of these topics and ids, or all, in their order; each is open while it is
        looked at."""
        for topic, queue_id in sorted(self.queue_names() if names is None else names):
            queue = self.queue(topic, queue_id)
            try:
                yield topic, queue_id, queue
            finally:
                queue.close()

    def queue_misfits(self, whole: Set[tuple[str, int]] = frozenset()) -> Iterator[QueueMisfit]:
        """Queue files of another length than the store's, most often 0 bytes; those of queues that
        are known to be ``whole`` are not looked at."""
        due = self.config.queue_file_size
        for topic, queue_id in self.queue_names():
            if (topic, queue_id) in whole:
                continue
            directory = self.paths.consume_queue / topic / str(queue_id)
            for name in self.files.list(directory):
                offset, stat = segment_offset(name), self.files.stat(directory / name)
                if offset is None or offset % due or stat is None or stat.is_directory:
                    continue
                if stat.size != due:
                    yield QueueMisfit(topic, queue_id, name, stat.size)

    def queue_names(self) -> Iterator[tuple[str, int]]:
        """Every topic and queue id that has a directory."""
        for topic in self.files.list(self.paths.consume_queue):
            for name in self.files.list(self.paths.consume_queue / topic):
                if name.isascii() and name.isdigit() and str(int(name)) == name:
                    yield topic, int(name)


class NamedRecord(NamedTuple):
    """A record's offset and size, as one queue entry states them."""

    offset: int
    size: int
    number: int
    """Number of the entry in its queue."""


class QuietQueue(NamedTuple):
    """A queue that got no entry since the last run noted how far the queues are on disk."""

    state: QueueState
    last_offset: int
    """The physical offset that the last entry names."""


class QueueFiles:
    """A ConsumeQueue's entries as they are in its files; keeps one file mapped."""

    def __init__(self, files: FileSystem, directory: Path, file_size: int) -> None:
        self._files = files
        self._entries = file_size // QUEUE_ENTRY_SIZE
        names = files.list(directory)
        self._paths = {
            offset // file_size: directory / name
            for name in names
            if (offset := segment_offset(name)) is not None
            and offset % file_size == 0
            and _size(files, directory / name) == file_size
        }
        self._has_others = len(names) > len(self._paths)
        """Whether other files are in the directory, such as one of a wrong length."""
        self._mapped: MappedBytes | None = None
        self._number = -1
        self._counts: dict[int, int] = {}
        """By file, the number of entries up to the last one that is not all zero; computed when
        needed."""
        self._blanks: dict[int, list[tuple[int, int]]] = {}
        """By file, its runs of entries that name no record, as their numbers in the queue."""
        self._passed = -1, -1
        """A physical offset, and the first file that may name one above it."""

    @property
    def first_index(self) -> int:
        """The first entry of the first file; 0 when there is none."""
        return min(self._paths, default=0) * self._entries

    @property
    def first_of_second_file(self) -> int | None:
        """The first entry of the second file; None without one right behind the first."""
        second = min(self._paths, default=0) + 1
        return second * self._entries if second in self._paths else None

    @property
    def end(self) -> int:
        """The position after the last entry that is not all zero; 0 when there is none."""
        for number in sorted(self._paths, reverse=True):
            if used := self._used(number):
                return number * self._entries + used
        return self.first_index

    @property
    def last_named(self) -> NamedRecord | None:
        """The record that the last entry names; None when no entry names any."""
        for index in range(self.end - 1, self.first_index - 1, -1):
            if (entry := self.entry(index)) is not None:
                return NamedRecord(*entry, index)
        return None

    def span(self, start: int, stop: int) -> tuple[int, int] | None:
        """The entries (first, end) that name records from physical offset ``start`` to before
        ``stop``; None without any."""
        first = self._first_above(start - 1)
        if first is None:
            return None
        behind = self._first_above(stop - 1)
        end = self.end if behind is None else behind
        return (first, end) if first < end else None

    def entry(self, index: int) -> tuple[int, int] | None:
        """(physical offset, size) of an entry; None for no entry, a zero or a pre-blank one."""
        view = self._view(index // self._entries)
        if view is None:
            return None
        offset, size, _ = _ENTRY.unpack_from(view, index % self._entries * QUEUE_ENTRY_SIZE)
        return None if size <= 0 or size == PRE_BLANK_SIZE else (offset, size)

    def first_beyond(self, physical: int) -> int | None:
        """The lowest physical offset above ``physical`` that an entry names (binary search)."""
        index = self._first_above(physical)
        entry = None if index is None else self.entry(index)
        return None if entry is None else entry[0]

    def named_within(self, start: int, stop: int) -> Iterator[NamedRecord]:
        """The records from physical offset ``start`` to before ``stop`` that entries name."""
        first, last = self._first_above(start - 1), start - 1
        for number in sorted(self._paths):
            low, high = number * self._entries, number * self._entries + self._used(number)
            if first is None or high <= first:
                continue
            for index in range(max(low, first), high):
                entry = self.entry(index)
                if entry is None or entry[0] <= last:  # a hole or its filler
                    continue
                if entry[0] >= stop:
                    return
                yield NamedRecord(*entry, index)
                last = entry[0]

    def holds(self, first: int, end: int, min_offset: int) -> bool:
        """Whether the last of the entries from ``first`` to before ``end`` exists, in files without
        a gap before it.

        Files may have expired: those of records below ``min_offset``, the log's minimum.
        """
        begin = self.first_index
        if begin > end or (begin > first and not self._begins_by(min_offset)):
            return False
        if begin == end:
            return True
        last = (end - 1) // self._entries
        if any(
            number not in self._paths for number in range(min(self._paths, default=0), last + 1)
        ):
            return False
        return self._is_written(end - 1)

    def quiet(self, noted: QueueState, derived_offset: int) -> QuietQueue | None:
        """The queue if it ends where the last run noted, and all its entries name records below
        ``derived_offset``; only where ``holds``. None where it has changed since."""
        last = self.entry(noted.end - 1)
        if last is None or last[0] >= derived_offset or self._has_others or self.end != noted.end:
            return None
        return QuietQueue(replace(noted, first=self.first_index), last[0])

    def _begins_by(self, min_offset: int) -> bool:
        """Whether the first entry shows that no record of the log is before it."""
        first = self.first_beyond(-1)
        return first is not None and first <= min_offset

    def _first_above(self, physical: int) -> int | None:
        passed, begin = self._passed
        for number in sorted(self._paths):
            if physical >= passed and number < begin:
                continue
            low = number * self._entries
            high = end = low + self._used(number)
            while low < high:
                middle = (low + high) // 2
                probe = self._next_named(middle, high)
                found = self.entry(probe) if probe < high else None
                if found is None or found[0] > physical:
                    high = middle
                else:
                    low = probe + 1
            low = self._next_named(low, end)
            if low < end:
                self._passed = physical, number
                return low
        return None

    def _next_named(self, start: int, stop: int) -> int:
        """The first entry from ``start`` that names a record, of one file; ``stop`` without one."""
        if start >= stop or self.entry(start) is not None:
            return start
        blanks = self._blanks_of(start // self._entries)
        run = blanks[bisect_right(blanks, (start, sys.maxsize)) - 1 :][:1]
        return min(run[0][1], stop) if run else stop

    def _blanks_of(self, number: int) -> list[tuple[int, int]]:
        if number not in self._blanks:
            view, used = self._view(number), self._used(number)
            data = b"" if view is None else bytes(view[: used * QUEUE_ENTRY_SIZE])
            first = number * self._entries
            self._blanks[number] = [
                (first + low, first + high) for low, high in runs_without_size(data)
            ]
        return self._blanks[number]

    def _is_written(self, index: int) -> bool:
        number, place = divmod(index, self._entries)
        view = self._view(number)
        if view is None or place >= self._used(number):  # what is behind may be a hole
            return False
        return any(view[place * QUEUE_ENTRY_SIZE : (place + 1) * QUEUE_ENTRY_SIZE])

    def close(self) -> None:
        """Unmap the file."""
        if self._mapped is not None:
            self._mapped.unmap()
        self._mapped, self._number = None, -1

    def _view(self, number: int) -> memoryview | None:
        """A file's bytes; None without one, also where a writer unlinked it after it was listed."""
        if number != self._number or self._mapped is None:
            path = self._paths.get(number)
            if path is None:
                return None
            self.close()
            try:
                self._mapped, self._number = self._map(path), number
            except FileNotFoundError:
                del self._paths[number]
                return None
        return self._mapped.view

    def _map(self, path: Path) -> MappedBytes:
        return self._files.map(path, writable=False, sparse=True)

    def _used(self, number: int) -> int:
        if number not in self._counts:
            view = self._view(number)
            if view is None:
                return 0
            next_data = partial(self._files.next_data, self._paths[number])
            try:
                used = last_nonzero(view, 0, next_data, SMALL_CHUNK)
            except FileNotFoundError:
                del self._paths[number]
                return 0
            self._counts[number] = -(-used // QUEUE_ENTRY_SIZE)
        return self._counts[number]


class QueueTable:
    """The queues of a store at rest, opened when needed and closed together."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._table: dict[tuple[bytes, int], QueueFiles] = {}
        self._is_complete = False
        self._mapped: OrderedDict[tuple[bytes, int], QueueFiles] = OrderedDict()
        """The queues that may have a file mapped, the one used last at the end."""
        self._named: NextNamed[tuple[bytes, int]] | None = None

    def get(self, topic: bytes, queue_id: int) -> QueueFiles:
        """The files of one queue."""
        key = topic, queue_id
        queue = self._table.get(key)
        if queue is None:
            queue = self._table[key] = self._view.queue(os.fsdecode(topic), queue_id)
        self._mapped[key] = queue
        self._mapped.move_to_end(key)
        if len(self._mapped) > _MAPPED_MAX:
            self._mapped.popitem(last=False)[1].close()
        return queue

    def next_named(self, after: int) -> int | None:
        """The least physical offset above ``after`` that any queue names. Cheap where the offsets
        of successive calls, and those of ``named_within``, ascend."""
        return self._named_from(after).above(after)

    def named_within(
        self, start: int, stop: int
    ) -> Iterator[tuple[tuple[bytes, int], NamedRecord]]:
        """Yield what entries name from physical offset ``start`` to before ``stop``, each with
        topic and queue id; see ``next_named``."""
        for key in self._named_from(start).within(start, stop):
            for named in self.get(*key).named_within(start, stop):
                yield key, named

    def _named_from(self, start: int) -> NextNamed[tuple[bytes, int]]:
        if self._named is None or start < self._named.start:
            keys = [key for key, _ in self.all()]
            self._named = NextNamed(keys, self._first_from, start)
        return self._named

    def _first_from(self, key: tuple[bytes, int], offset: int) -> int | None:
        return self.get(*key).first_beyond(offset - 1)

    def all(self) -> list[tuple[tuple[bytes, int], QueueFiles]]:
        """Every queue that has a directory or was requested, by topic and queue id."""
        if not self._is_complete:
            for topic, queue_id in self._view.queue_names():
                self.get(os.fsencode(topic), queue_id)
            self._is_complete = True
        return list(self._table.items())

    def close(self) -> None:
        """Close all queues."""
        for queue in self._mapped.values():
            queue.close()
        self._mapped.clear()


def holds_a_store(files: FileSystem, paths: StorePaths) -> bool:
    """Whether a directory has a log, queues or a checkpoint."""
    return bool(files.list(paths.commit_log)) or any(
        files.stat(path) is not None
        for path in (paths.commit_log, paths.consume_queue, paths.checkpoint)
    )


def find_segments(files: FileSystem, paths: StorePaths, size: int) -> Segments:
    """Sort the files of the log's directory; ``size`` is the length of a segment."""
    found: list[Segment] = []
    strays: list[str] = []
    for name in files.list(paths.commit_log):
        base = segment_offset(name)
        stat = files.stat(paths.commit_log / name)
        if base is None or stat is None or stat.is_directory:
            strays.append(str(paths.commit_log / name))
        else:
            found.append(Segment(paths.commit_log / name, base, stat.size))
    empty: list[Segment] = []
    while found and found[-1].length == 0:
        empty.insert(0, found.pop())
    misfits = [s for s in found if s.length != size]
    if misfits and misfits[-1] == found[-1] and found[-1].length < size:
        misfits.pop()
    usable = tuple(s for s in found if s not in misfits)
    return Segments(usable, tuple(misfits), tuple(strays), tuple(empty))


def read_checkpoint(files: FileSystem, path: Path) -> CheckpointTimes:
    """Read the checkpoint; zeros without one of the right size: recovery then only takes longer."""
    if _size(files, path) != CHECKPOINT_SIZE:
        return CheckpointTimes()
    return CheckpointTimes(*_CHECKPOINT.unpack_from(files.read(path), 0))


def _size(files: FileSystem, path: Path) -> int | None:
    stat = files.stat(path)
    return None if stat is None else stat.size
