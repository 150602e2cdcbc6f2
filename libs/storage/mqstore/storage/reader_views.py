"""The files of a store as a reader follows them: the log, the queues, the index, and clock steps.

Called from ``store_reader``. Nothing is written; what the writer has not published is not read.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage._kernel import LogWindow, PulledQueue
from mqstore.storage.index.file import IndexFile
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import EXT_ADDRESS_MIN, PAGE_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata import clock_steps
from mqstore.storage.metadata.clock_steps import NO_STEPS, StepsView
from mqstore.storage.metadata.state_page import StatePageReader
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.ext_addresses import first_address
from mqstore.storage.queues.queue_entry import ENTRY, QueueEntry
from mqstore.storage.seams import FileStat, FileSystem, Seams
from mqstore.storage.sizes import ext_file_size
from mqstore.storage.topic_names import is_safe_path, raw_name

log = logging.getLogger(__name__)

QUEUES_MAX: Final = 16_384
"""Queues that are mapped at a time: a process may have 65,530 maps, and a queue in use several."""


class ReaderFiles:
    """Mapped segments that follow the state page."""

    def __init__(self, files: MappedFileQueue, state: StatePageReader) -> None:
        self._files = files
        self._state = state
        self._lock = Lock()
        self._seen: tuple[int, int] | None = None

    def follow(self) -> tuple[MappedFile, ...]:
        """The files as they are: mapped afresh after a recovery, without expired ones."""
        if self._now() != self._seen:
            with self._lock:
                self._catch_up()
        return self._files.files

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The mapped files, expired ones too."""
        return self._files.files

    def _now(self) -> tuple[int, int]:
        return self._state.epoch, self._state.min_offset

    def _catch_up(self) -> None:
        now = self._now()
        if now != self._seen:
            self._files.refresh(remap=self._seen is not None and now[0] != self._seen[0])
            # Only now: until then no other thread may take the old files for the new ones.
            self._seen = now

    def find(self, offset: int) -> MappedFile | None:
        """The segment of a byte that should be there, also one made since the last look."""
        self.follow()
        found = self._files.find(offset)
        if found is None and self._files.refresh():
            found = self._files.find(offset)
        return found

    def look_again(self) -> bool:
        """List the directory; whether anything changed."""
        return self._files.refresh()

    def drop_deleted(self) -> None:
        """Drop the maps of files that were unlinked, the oldest ones or the one made ahead."""
        if self._seen is not None and self._now()[0] != self._seen[0]:
            self.follow()
        files = self._files.files
        if files and (self._files.is_gone(files[0]) or self._files.is_gone(files[-1])):
            self._files.refresh()

    def close(self) -> None:
        """Unmap all files."""
        self._files.close()


class ReaderLog:
    """The commit log below the state page's maximum (``lookups.LogView``)."""

    def __init__(self, segments: ReaderFiles, state: StatePageReader) -> None:
        self._segments = segments
        self._state = state
        self.close = segments.close
        self.drop_deleted = segments.drop_deleted

    @property
    def min_offset(self) -> int:
        """The log's minimum, as the writer published it."""
        return self._state.min_offset

    @property
    def max_offset(self) -> int:
        """The end of what may be read, as the writer published it."""
        return self._state.max_offset

    def select(self, offset: int, size: int) -> memoryview | None:
        """As of ``CommitLog.select``."""
        if offset < self.min_offset or offset + size > self.max_offset:
            return None
        segment = self._segments.find(offset)
        return None if segment is None else segment.slice(offset - segment.base_offset, size)

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """As of ``CommitLog.view_from``, with the readable end."""
        end = self.max_offset
        if not self.min_offset <= offset < end:
            return None
        segment = self._segments.find(offset)
        if segment is None:
            return None
        base = segment.base_offset
        return segment.view, offset - base, min(segment.size, end - base)


class ReaderQueue:
    """One topic-queue (``lookups.QueueView``); its end is found from its files."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        segments: ReaderFiles,
        open_units: Callable[[], ReaderFiles | None],
        state: StatePageReader,
        window: LogWindow,
    ) -> None:
        """``open_units``: None where the queue has no ConsumeQueueExt."""
        self.topic = topic
        self.raw_topic = raw_name(topic)
        self.queue_id = queue_id
        self.pulled = PulledQueue(window, self.raw_topic, queue_id)
        """The queue for pulls in one call. It keeps maps of files until ``drop_deleted``."""
        self.is_used = True
        """Whether it was looked up since ``ReaderQueues.drop_idle``."""
        self._segments = segments
        self._state = state
        self._open_units = open_units
        self._units: ReaderFiles | None = None
        self._minimum: tuple[tuple[int, int], int] | None = None
        self._end: tuple[int, int] = (state.epoch, 0)

    @property
    def min_index(self) -> int:
        """The first entry at or above the log's minimum; pre-blank entries count as offset 0."""
        basis = (self._state.epoch, self._state.min_offset)
        if self._minimum is not None and self._minimum[0] == basis:
            return self._minimum[1]
        found = self.find_by_physical(basis[1])
        if self.max_index > 0:
            self._minimum = (basis, found)
        return found

    @property
    def max_index(self) -> int:
        """The entry after the last one that was written."""
        files = self._segments.follow()
        epoch, known = self._end
        if epoch != self._state.epoch:
            epoch, known = self._state.epoch, 0
        if not files or known == files[-1].end_offset // QUEUE_ENTRY_SIZE:
            self._segments.look_again()
            files = self._segments.follow()
        if not files:
            return 0
        if known == 0 or self._is_written(known):
            known = _end_of(files, known)
        self._end = (epoch, known)
        return known

    def _is_written(self, index: int) -> bool:
        """Whether the entry after the last known one is there."""
        offset = index * QUEUE_ENTRY_SIZE
        mapped = _holding(self._segments.follow(), offset)
        if mapped is None:
            return False
        position = offset - mapped.base_offset
        if _last_page(position) == _last_page(position - QUEUE_ENTRY_SIZE):
            return _entry_at(mapped, position) is not None  # its page holds the entry before
        return _probe(mapped, position) is not None

    def entry(self, index: int) -> QueueEntry | None:
        """Entry ``index`` as it stands, or None where none was written."""
        if index < 0:
            return None
        offset = index * QUEUE_ENTRY_SIZE
        mapped = _holding(self._segments.follow(), offset)
        return None if mapped is None else _entry_at(mapped, offset - mapped.base_offset)

    def block(self, index: int) -> tuple[memoryview, int] | None:
        """The whole file that holds entry ``index``, and the position of the entry in it."""
        offset = index * QUEUE_ENTRY_SIZE
        mapped = _holding(self._segments.follow(), offset)
        return None if mapped is None else (mapped.view, offset - mapped.base_offset)

    def drop_deleted(self) -> bool:
        """Drop the maps of files that were unlinked; whether the writer is to unlink more."""
        for segments in (self._segments, self._units):
            if segments is not None:
                segments.drop_deleted()
        files = self._segments.files
        self.pulled.release(files[0].base_offset // QUEUE_ENTRY_SIZE if files else 0)
        return self._has_expired_file()

    def _has_expired_file(self) -> bool:
        """Whether the first file has expired, by the rules of ``ConsumeQueue.delete_before``."""
        files = self._segments.files
        if len(files) > 1:  # the last one always stays
            last = _probe(files[0], files[0].size - QUEUE_ENTRY_SIZE)
            if last is not None and last.physical_offset < self._state.min_offset:
                return True
        units = () if self._units is None else self._units.files
        if not units:
            return False
        address = first_address(self, self.min_index, self.max_index)
        return address is not None and units[0].end_offset <= address - EXT_ADDRESS_MIN

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file of ConsumeQueueExt units that holds an address, and where it begins."""
        if self._units is None:
            self._units = self._open_units()
        mapped = None if self._units is None else self._units.find(address - EXT_ADDRESS_MIN)
        return None if mapped is None else (mapped.view, mapped.base_offset)

    def close(self) -> None:
        """Unmap the queue's files."""
        self.pulled.forget()
        self._segments.close()
        if self._units is not None:
            self._units.close()

    def find_by_physical(self, min_physical: int) -> int:
        """The first entry at or above a physical offset; ``max_index`` when there is none."""
        files = self._segments.follow()
        low = files[0].base_offset // QUEUE_ENTRY_SIZE if files else 0
        high = self.max_index
        while low < high and min_physical > 0:
            middle = (low + high) // 2
            probe = self._next_named(middle, high)
            entry = self.entry(probe) if probe < high else None
            if entry is None or entry.physical_offset >= min_physical:
                high = middle
            else:
                low = probe + 1
        return self._next_named(low, self.max_index) if min_physical > 0 else low

    def _next_named(self, start: int, stop: int) -> int:
        """The first entry from ``start`` that names a record; ``stop`` when there is none."""
        for index in range(start, stop):
            entry = self.entry(index)
            if entry is not None and not entry.is_hole:
                return index
        return stop


class ReaderQueues:
    """Every topic-queue that has a directory (``lookups.QueuesView``); mapped at first use, until
    ``drop_idle``. At most QUEUES_MAX are mapped."""

    def __init__(
        self,
        paths: StorePaths,
        file_size: int,
        seams: Seams,
        state: StatePageReader,
        window: LogWindow,
    ) -> None:
        """``window`` is that of the store's look-ups."""
        self._window = window
        self._paths = paths
        self._file_size = file_size
        self._seams = seams
        self._state = state
        self._lock = Lock()
        self._known: dict[tuple[str, int], ReaderQueue] = {}
        self._seen = state.epoch
        self._expiring: list[ReaderQueue] = []
        self._expired_below: tuple[int, int] | None = None

    def get(self, topic: str, queue_id: int) -> ReaderQueue | None:
        """A queue; None where it has no directory."""
        if self._seen != self._state.epoch:
            self._forget_deleted()
        found = self.known(topic, queue_id)
        if found is None and is_safe_path(topic) and queue_id >= 0:
            directory = self._paths.consume_queue / topic / str(queue_id)
            if self._seams.files.stat(directory) is not None:
                found = self._open(topic, queue_id)
        return found

    def known(self, topic: str, queue_id: int) -> ReaderQueue | None:
        """Return a queue that is mapped and of this epoch; None otherwise."""
        queue = self._known.get((topic, queue_id)) if self._seen == self._state.epoch else None
        if queue is not None:
            queue.is_used = True
        return queue

    def pulled(self, topic: str, queue_id: int) -> PulledQueue | None:
        """One that was looked at before, for a ``PullLane``; None for any other."""
        queue = self.known(topic, queue_id)
        return None if queue is None else queue.pulled

    def aim(self, topic: str, queue_id: int, offset: int) -> None:
        """Prepare a queue that was just read for pulls in one call from an offset on."""
        queue = self.known(topic, queue_id)
        if queue is not None:
            queue.pulled.aim(queue, offset)

    def topics(self) -> list[str]:
        """Names of topics that have a queue, as the directories are now, sorted."""
        names = self._seams.files.list(self._paths.consume_queue)
        return sorted(name for name in names if next(self.of_topic(name), None) is not None)

    def of_topic(self, topic: str) -> Iterator[ReaderQueue]:
        """The queues of one topic, by queue id."""
        directory = self._paths.consume_queue / topic
        stat = self._seams.files.stat(directory) if is_safe_path(topic) else None
        if stat is not None and stat.is_directory:
            names = self._seams.files.list(directory)
            for queue_id in sorted(int(name) for name in names if _is_queue_id(name)):
                yield self.known(topic, queue_id) or self._open(topic, queue_id)

    def drop_deleted(self) -> None:
        """Drop the maps of files that were unlinked, and of queues that were. One thread at a time.

        All queues are looked at when the log's minimum has moved, from then on only those of which
        the writer has yet to unlink a file.
        """
        now = self._state.epoch, self._state.min_offset
        if now != self._expired_below:
            if self._seen != now[0]:
                self._forget_deleted()
            with self._lock:
                self._expiring = list(self._known.values())
            self._expired_below = now
        self._expiring = [
            queue for queue in self._expiring if self._holds(queue) and queue.drop_deleted()
        ]

    def drop_idle(self) -> None:
        """Drop the maps of queues that were not looked up since the call before. Any thread."""
        with self._lock:
            for queue in [*self._known.values()]:
                if not queue.is_used:
                    self._drop(queue)
                queue.is_used = False

    def _make_room(self) -> None:
        """Drop those that were opened first, in steps: each passes over all of them."""
        if len(self._known) >= QUEUES_MAX:
            for queue in [*self._known.values()][: QUEUES_MAX // 8]:
                self._drop(queue)

    def _holds(self, queue: ReaderQueue) -> bool:
        return self._known.get((queue.topic, queue.queue_id)) is queue

    def _drop(self, queue: ReaderQueue) -> None:
        """Its maps go with the last look-up that uses it."""
        del self._known[queue.topic, queue.queue_id]
        queue.pulled.forget()

    def close(self) -> None:
        """Unmap all queues."""
        with self._lock:
            for queue in self._known.values():
                queue.close()
            self._known.clear()

    def _forget_deleted(self) -> None:
        """Queues go with their topic, and with a recovery; each has a new epoch."""
        with self._lock:
            self._seen = self._state.epoch
            for (topic, queue_id), queue in [*self._known.items()]:
                directory = self._paths.consume_queue / topic / str(queue_id)
                if self._seams.files.stat(directory) is None:
                    self._drop(queue)

    def _open(self, topic: str, queue_id: int) -> ReaderQueue:
        directory = self._paths.consume_queue / topic / str(queue_id)
        with self._lock:
            key = (topic, queue_id)
            if key not in self._known:
                self._make_room()
                segments = reader_files(
                    directory, self._file_size, self._seams, self._state, derived=True
                )
                open_units = partial(self._open_units, topic, queue_id)
                self._known[key] = ReaderQueue(
                    topic, queue_id, segments, open_units, self._state, self._window
                )
            return self._known[key]

    def _open_units(self, topic: str, queue_id: int) -> ReaderFiles | None:
        directory = self._paths.consume_queue_ext / topic / str(queue_id)
        size = ext_file_size(self._seams.files, directory)
        if size is None:
            return None
        return reader_files(directory, size, self._seams, self._state, derived=True)


class ReaderIndex:
    """The index files (``lookups.IndexView``), listed when their generation moves."""

    def __init__(self, index: IndexService, state: StatePageReader) -> None:
        self._index = index
        self._state = state
        self._lock = Lock()
        self._seen = (state.epoch, -1)
        self.close = index.close

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The index files, oldest first."""
        self._follow()
        return self._index.files

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, below: int
    ) -> Iterator[int]:
        """As of ``IndexService.candidates``."""
        self._follow()
        return self._index.candidates(topic, key, begin_ms, end_ms, below)

    def drop_deleted(self) -> None:
        """Drop the maps of files that were unlinked."""
        self._follow()

    def _follow(self) -> None:
        with self._lock:
            # A generation that moves meanwhile may have taken files that were listed before it.
            while (now := (self._state.epoch, self._state.index_generation)) != self._seen:
                self._index.refresh(remap=now[0] != self._seen[0])
                self._seen = now


class FollowedSteps:
    """Steps of the clock, as the writer notes them before it stores what comes after."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._known: tuple[FileStat | None, StepsView] = (None, NO_STEPS)

    def now(self) -> StepsView:
        """A file that cannot be read leaves what was known. OSError."""
        stat = self._files.stat(self._path)
        if stat != self._known[0]:
            try:
                self._known = stat, clock_steps.read(self._files, self._path)
            except ValueError as error:
                log.error("steps of the clock cannot be read: %s", error)
                self._known = stat, self._known[1]
        return self._known[1]


def reader_files(
    directory: Path,
    file_size: int,
    seams: Seams,
    state: StatePageReader,
    *,
    derived: bool = False,
) -> ReaderFiles:
    """The files of one directory, followed as the writer changes them."""
    files = MappedFileQueue(
        directory, file_size, seams, staging=directory, writable=False, derived=derived
    )
    return ReaderFiles(files, state)


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _entry_at(mapped: MappedFile, position: int) -> QueueEntry | None:
    entry = QueueEntry(*ENTRY.unpack_from(mapped.view, position))
    return None if entry.is_missing else entry


def _last_page(position: int) -> int:
    """Position of the page that holds the last byte of the entry at a position."""
    return (position + QUEUE_ENTRY_SIZE - 1) // PAGE_SIZE * PAGE_SIZE


def _probe(mapped: MappedFile, position: int) -> QueueEntry | None:
    """Read an entry that may lie behind the reserved part of its file; None there.

    A hole is not read: that makes a page, and on a tmpfs without room for it raises SIGBUS.
    """
    page = _last_page(position)
    try:
        if mapped.next_data(page) != page:
            return None
    except FileNotFoundError:
        pass  # an unlinked file, which this process still maps
    return _entry_at(mapped, position)


def _holding(files: tuple[MappedFile, ...], offset: int) -> MappedFile | None:
    place = bisect_right(files, offset, key=attrgetter("base_offset")) - 1
    if place < 0 or offset >= files[place].end_offset:
        return None
    return files[place]


def _end_of(files: tuple[MappedFile, ...], known: int) -> int:
    """The index after the last written entry; entries below ``known`` are written."""
    for mapped in reversed(files):
        low = max(0, known * QUEUE_ENTRY_SIZE - mapped.base_offset) // QUEUE_ENTRY_SIZE
        high = mapped.size // QUEUE_ENTRY_SIZE
        if low < high and _probe(mapped, low * QUEUE_ENTRY_SIZE) is not None:
            reach = 1  # pages behind the end are not looked at: each would take memory
            while low + reach < high and _probe(mapped, (low + reach) * QUEUE_ENTRY_SIZE):
                low, reach = low + reach, 2 * reach
            high = min(high, low + reach)
            while high - low > 1:
                middle = (low + high) // 2
                if _probe(mapped, middle * QUEUE_ENTRY_SIZE) is None:
                    high = middle
                else:
                    low = middle
            return mapped.base_offset // QUEUE_ENTRY_SIZE + high
    return max(known, files[0].base_offset // QUEUE_ENTRY_SIZE)
