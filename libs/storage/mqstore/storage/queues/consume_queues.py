"""Every topic-queue of a store, found from the tree ``consumequeue/TOPIC/QUEUEID/``.

A queue that a clean close left, or that a killed writer left alone since it noted the queues, is at
rest, and costs two numbers, until it is first used: then its files are mapped. One thread at a time
creates and writes (the dispatcher, under its lock); any thread may look up queues, and make files
ahead of their entries.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from mqstore.storage._kernel import QueueWindow
from mqstore.storage.codec.java_text import decode_utf8
from mqstore.storage.errors import StoreFailed
from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.mapped.mapped_file_queue import (
    MappedFileQueue,
    StrayFile,
    StrayReason,
    sync_directories,
)
from mqstore.storage.metadata.manifest import QueueState
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queue_ext import ConsumeQueueExt
from mqstore.storage.queues.next_named import NextNamed
from mqstore.storage.seams import Seams
from mqstore.storage.topic_names import is_safe_path

_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_QUEUE_ID_MAX: Final = 2**31 - 1
_DEPTH: Final = 3
"""Directories above that of a queue, up to the store's root."""
EXT_FILE_SIZE: Final = 48 << 20
"""RocketMQ's mappedFileSizeConsumeQueueExt."""


def queue_key(raw_topic: bytes, queue_id: int) -> bytes:
    """The kernel's key of a queue: topic bytes and the queue id in 4 bytes, big-endian."""
    return raw_topic + (queue_id & 0xFFFFFFFF).to_bytes(4)


def split_key(key: bytes) -> tuple[str, int]:
    """Split a kernel key into topic and queue id."""
    return decode_utf8(key[:-4]), int.from_bytes(key[-4:], signed=True)


class ConsumeQueues:
    """The table of queues, and the kernel's windows over them."""

    def __init__(
        self,
        paths: StorePaths,
        file_size: int,
        seams: Seams,
        *,
        ext_file_size: int = EXT_FILE_SIZE,
        writable: bool = True,
        on_damage: Callable[[StoreFailed], None] = lambda _: None,
    ) -> None:
        """``file_size`` is that of one ConsumeQueue file, a multiple of 20 bytes.

        ``on_damage`` is called when a queue at rest proves to be another than was closed.
        """
        self.file_size = file_size
        self.windows: dict[bytes, QueueWindow] = {}
        """By ``queue_key``, the windows through which ``dispatch_run`` writes.

        Queues whose entries get units, or whose units are not verified yet, have none here.
        """
        self.windows_by_place: dict[tuple[str, int], QueueWindow] = {}
        """The same windows by topic and queue id."""
        self._table: dict[tuple[str, int], ConsumeQueue] = {}
        """The queues that are mapped."""
        self._at_rest: dict[tuple[str, int], QueueState] = {}
        """The queues that were not used since the opening."""
        self.expired_files = 0
        """Files that ``delete_before`` has unlinked since the opening."""
        self._min_physical = 0
        """The log's minimum, as last given."""
        self._on_damage = on_damage
        self._ahead: dict[tuple[str, int], ConsumeQueue] = {}
        """Queues that may have a first file but no entry yet."""
        self._open_lock = Lock()
        self._makes_ahead = True
        self._by_topic: dict[str, set[int]] = {}
        """Queue ids of each topic, of queues at rest too."""
        self._by_key: dict[bytes, ConsumeQueue] = {}
        self._paths = paths
        self._seams = seams
        self._writable = writable
        self._ext_file_size = ext_file_size
        self._with_units = set(seams.files.list(paths.consume_queue_ext))
        self._is_extended: Callable[[str], bool] = lambda topic: False
        self._recovering = True
        self._named: NextNamed[tuple[str, int]] | None = None

    def load(self, closed: Iterable[QueueState] = ()) -> list[StrayFile]:
        """Load every queue on disk; returns the stray paths of the tree.

        ``closed`` queues without units are left at rest: their entries are known and durable.
        Raises StoreFailed for one with units that has other entries than were left.
        """
        strays: list[StrayFile] = []
        known = {state.place: state for state in closed}
        for place in self._scan(strays, known):
            state = known.get(place)
            if state is not None and state.topic not in self._with_units:
                self._at_rest[place] = state
                self._by_topic.setdefault(state.topic, set()).add(state.queue_id)
                continue
            queue = self._make(*place)
            strays += queue.load()
            if state is not None:
                self._require_entries(queue, state)
            self._register(queue)
        return strays

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None. Raises StoreFailed when its files are not those that were closed."""
        place = topic, queue_id
        queue = self._table.get(place)
        if queue is None and place in self._at_rest:
            return self._open(place)
        return queue

    def known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue if it is mapped (``queue_pulls.Queues``)."""
        return self._table.get((topic, queue_id))

    def is_at_rest(self, topic: str, queue_id: int) -> bool:
        """Whether ``get`` would map the files of the queue, which reads the disk."""
        return (topic, queue_id) in self._at_rest

    def _open(self, place: tuple[str, int]) -> ConsumeQueue | None:
        """Map the files of a queue at rest."""
        with self._open_lock:
            state = self._at_rest.get(place)
            if state is None:  # another thread has opened or deleted it
                return self._table.get(place)
            queue = self._make(*place)
            queue.load()
            self._require_entries(queue, state)
            queue.files.mark_flushed(queue.max_index * QUEUE_ENTRY_SIZE)
            for files in _files_of(queue):
                files.names_due = False
            queue.correct_min(self._min_physical)
            if not self._makes_ahead:
                queue.files.end_ahead()
            self._register(queue)
            del self._at_rest[place]
            return queue

    def _require_entries(self, queue: ConsumeQueue, state: QueueState) -> None:
        """Raise StoreFailed unless a queue has the entries that it was left with."""
        if (queue.first_index, queue.max_index) == (state.first, state.end):
            return
        queue.files.close()
        error = StoreFailed(
            f"queue {state.queue_id} of {state.topic} was left with the entries {state.first} to "
            f"{state.end}, and has {queue.first_index} to {queue.max_index}: the next opening "
            "makes the missing ones again"
        )
        self._on_damage(error)
        raise error

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, created when new (its first file comes with its first entry).

        None when the name is no valid path.
        """
        place = topic, queue_id
        queue = self.get(topic, queue_id)
        if queue is None and _may_be(topic, queue_id):
            with self._open_lock:
                queue = self._ahead.pop(place, None) or self._make(topic, queue_id)
                self._register(queue)
        return queue

    def get_or_prepare(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """As ``get_or_create``, to make files ahead: a new queue is not listed before its first
        entry, and is dropped by ``end_ahead``. Any thread."""
        place = topic, queue_id
        if (queue := self.get(topic, queue_id)) is not None:
            return queue
        with self._open_lock:
            queue = self._table.get(place) or self._ahead.get(place)
            if queue is None and self._makes_ahead and _may_be(topic, queue_id):
                queue = self._ahead[place] = self._make(topic, queue_id)
            return queue

    def end_ahead(self) -> None:
        """Remove unused files that were made ahead, and make no more. Raises OSError."""
        with self._open_lock:
            self._makes_ahead = False
        for queue in self.opened():
            queue.files.end_ahead()
        self._drop_ahead(lambda _: True)

    def _drop_ahead(self, is_meant: Callable[[str], bool]) -> None:
        with self._open_lock:
            dropped = [
                self._ahead.pop(place) for place in sorted(self._ahead) if is_meant(place[0])
            ]
        for queue in dropped:
            queue.destroy()
            self._remove_empty(queue.files.directory)

    def all(self) -> list[ConsumeQueue]:
        """All queues of this moment, in topic and queue id order. Opens those at rest."""
        opened = (self.get(*place) for place in self._places())
        return [queue for queue in opened if queue is not None]

    def opened(self) -> list[ConsumeQueue]:
        """The queues that are mapped, in topic and queue id order."""
        return [queue for _, queue in sorted(self._table.items())]

    @property
    def count(self) -> int:
        """Number of queues."""
        return len(self._table) + len(self._at_rest)

    def states(self) -> Iterator[QueueState]:
        """Yield the entries of each queue of this moment, in topic and queue id order; opens
        none."""
        for place in self._places():
            queue = self._table.get(place)
            if queue is None and (state := self._at_rest.get(place)) is not None:
                yield state
            elif (queue := queue or self._table.get(place)) is not None:
                yield QueueState(*place, queue.first_index, queue.max_index)

    def _places(self) -> list[tuple[str, int]]:
        return sorted({*self._table, *self._at_rest})

    def topics(self) -> list[str]:
        """Names of topics that have a queue, sorted."""
        return sorted(self._by_topic)

    def queue_ids(self, topic: str) -> list[int]:
        """The ids of one topic's queues, sorted; opens none."""
        return sorted(self._by_topic.get(topic, ()))

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of one topic, by queue id."""
        opened = (self.get(topic, queue_id) for queue_id in self.queue_ids(topic))
        return [queue for queue in opened if queue is not None]

    def publish(self, keys: set[bytes]) -> None:
        """Set the written positions of these queues' files from their windows."""
        for key in keys:
            self._by_key[key].publish()

    def flush(self, least_pages: int = 0) -> bool:
        """Sync all queues; returns whether anything was synced. Any thread. Raises StoreFailed.

        The names of new files are synced by a flush of everything, each directory once.
        """
        queues = list(self._table.values())
        flushed = [queue.flush(least_pages) for queue in queues if queue.may_be_dirty]
        if not least_pages:
            self._sync_names(queues)
        return any(flushed)

    def _sync_names(self, queues: list[ConsumeQueue]) -> None:
        due: set[Path] = set()
        for files in (files for queue in queues for files in _files_of(queue)):
            if files.names_due:
                files.names_due = False
                due.update((files.directory, *files.directory.parents[:_DEPTH]))
        sync_directories(self._seams.files, sorted(due, reverse=True))

    def delete_before(self, min_physical: int) -> Iterator[int]:
        """Unlink the files below the log's minimum and correct minima; yields the number of files
        of each queue that lost some. Raises OSError.

        A queue at rest is opened only when it has more than one file: the last one always stays.
        """
        self._min_physical = min_physical
        for state in list(self.states()):
            is_long = (state.end - state.first) * QUEUE_ENTRY_SIZE > self.file_size
            queue = self.get(*state.place) if is_long else self.known(*state.place)
            if queue is not None and (gone := queue.delete_before(min_physical)):
                self.expired_files += gone
                yield gone

    def correct_min(self, min_physical: int) -> None:
        """Correct the minima of all queues; of a queue at rest when it is opened."""
        self._min_physical = min_physical
        for queue in self.opened():
            queue.correct_min(min_physical)

    def max_physical_end(self) -> int:
        """The end of the last record that any queue names; 0 when there is none."""
        return max((queue.max_physical_end() for queue in self.all()), default=0)

    def next_physical(self, after: int) -> int | None:
        """The least physical offset above ``after`` that a queue entry names.

        For the thread that dispatches, at damage: the entries that it adds are of records before.
        """
        if self._named is None or after < self._named.start:
            self._named = NextNamed(self._places(), self._first_from, after)
        return self._named.above(after)

    def _first_from(self, place: tuple[str, int], offset: int) -> int | None:
        queue = self.get(*place)
        entry = None if queue is None else queue.entry(queue.find_by_physical(offset))
        return None if entry is None or entry.is_hole else entry.physical_offset

    def remove_before(self, topic: str, physical_offset: int) -> None:
        """Remove a topic's entries of records below an offset, and ``destroy`` the queues that have
        no others. Raises OSError."""
        self._drop_ahead(lambda each: each == topic)
        for queue in self.of_topic(topic):
            index = queue.find_by_physical(physical_offset)
            if index == queue.max_index:
                self.destroy(topic, queue.queue_id)
            elif queue.find_by_physical(0) < index:
                queue.remove_before(index)

    def destroy(self, topic: str, queue_id: int) -> None:
        """Unlink a queue's files, and its directories when they are then empty."""
        self.get(topic, queue_id)
        queue = self._forget((topic, queue_id))
        if queue is None:
            return
        queue.destroy()
        if queue.ext is not None:
            self._remove_empty(queue.ext.files.directory)
        self._remove_empty(queue.files.directory)

    def _remove_empty(self, directory: Path) -> None:
        for each in (directory, directory.parent):
            if self._seams.files.stat(each) and not self._seams.files.list(each):
                self._seams.files.remove_directory(each)
                self._seams.files.sync_directory(each.parent)

    def extend(self, is_extended: Callable[[str], bool]) -> None:
        """Give units to new entries of the topics for which ``is_extended`` is true."""
        self._is_extended = is_extended
        for queue in self._table.values():
            self._route(queue)

    def end_recovery(self) -> None:
        """Let the kernel write to queues without units, once their files are verified."""
        self._recovering = False
        self.extend(self._is_extended)

    def route(self, topic: str) -> None:
        """Decide again whether entries of a topic get units."""
        for queue in self.of_topic(topic):
            self._route(queue)

    def close(self) -> None:
        """Unmap all files; flush before."""
        for queue in self._table.values():
            queue.window.attach(None, 0, 0)
            queue.files.close()
            if queue.ext is not None:
                queue.ext.files.close()

    def _scan(
        self, strays: list[StrayFile], known: Mapping[tuple[str, int], QueueState]
    ) -> list[tuple[str, int]]:
        """Find the directories of queues; those of ``known`` queues are no longer looked at."""
        found = []
        topics = defaultdict(set)
        for topic, queue_id in known:
            topics[topic].add(str(queue_id))
        for directory in self._directories(self._paths.consume_queue, strays, topics):
            queues = topics.get(directory.name, ())
            for queue_directory in self._directories(directory, strays, queues):
                name = queue_directory.name
                if _QUEUE_ID.fullmatch(name) and int(name) <= _QUEUE_ID_MAX:
                    found.append((directory.name, int(name)))
                else:
                    strays.append(StrayFile(queue_directory, 0, StrayReason.NAME, None))
        return found

    def _directories(
        self, parent: Path, strays: list[StrayFile], known: Container[str]
    ) -> list[Path]:
        found = []
        for name in self._seams.files.list(parent):
            path = parent / name
            if name in known:
                found.append(path)
                continue
            stat = self._seams.files.stat(path)
            if stat is not None and stat.is_directory:
                found.append(path)
            elif stat is not None:
                strays.append(StrayFile(path, stat.size, StrayReason.NAME, None))
        return found

    def path_of(self, topic: str, queue_id: int) -> Path:
        """The directory of a queue."""
        return self._paths.consume_queue / topic / str(queue_id)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        files = MappedFileQueue(
            self.path_of(topic, queue_id),
            self.file_size,
            self._seams,
            staging=self._paths.queue_staging,
            writable=self._writable,
            derived=True,
        )
        ext = None
        if topic in self._with_units:
            directory = self._paths.consume_queue_ext / topic / str(queue_id)
            ext = self._make_ext(directory) if self._seams.files.stat(directory) else None
        return ConsumeQueue(topic, queue_id, files, self.file_size, ext)

    def _make_ext(self, directory: Path) -> ConsumeQueueExt:
        files = MappedFileQueue(
            directory,
            self._ext_file_size,
            self._seams,
            staging=self._paths.queue_staging,
            writable=self._writable,
            derived=True,
        )
        return ConsumeQueueExt(files)

    def _register(self, queue: ConsumeQueue) -> None:
        place = queue.topic, queue.queue_id
        self._table[place] = queue
        self._by_topic.setdefault(queue.topic, set()).add(queue.queue_id)
        self._by_key[_key_of(queue)] = queue
        self._route(queue)

    def _route(self, queue: ConsumeQueue) -> None:
        """Give the kernel the window of a queue without units."""
        queue.extends = self._is_extended(queue.topic)
        place, key = (queue.topic, queue.queue_id), _key_of(queue)
        if queue.extends and queue.ext is None:
            topic, queue_id = place
            self._with_units.add(topic)
            queue.ext = self._make_ext(self._paths.consume_queue_ext / topic / str(queue_id))
        if queue.extends or (self._recovering and queue.ext is not None):
            self.windows.pop(key, None)
            self.windows_by_place.pop(place, None)
        else:
            self.windows[key] = self.windows_by_place[place] = queue.window

    def _forget(self, place: tuple[str, int]) -> ConsumeQueue | None:
        queue = self._table.pop(place, None)
        if queue is not None:
            of_topic = self._by_topic[queue.topic]
            of_topic.discard(queue.queue_id)
            if not of_topic:
                del self._by_topic[queue.topic]
            del self._by_key[_key_of(queue)]
            self.windows.pop(_key_of(queue), None)
            self.windows_by_place.pop(place, None)
        return queue


def _may_be(topic: str, queue_id: int) -> bool:
    return is_safe_path(topic) and 0 <= queue_id <= _QUEUE_ID_MAX


def _files_of(queue: ConsumeQueue) -> list[MappedFileQueue]:
    return [queue.files] if queue.ext is None else [queue.files, queue.ext.files]


def _key_of(queue: ConsumeQueue) -> bytes:
    return queue_key(queue.raw_topic, queue.queue_id)
