"""The views that look-ups read: a log, its queues and its index, of the writer or of a reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from mqstore.storage._kernel import Word
from mqstore.storage.layout import PRE_BLANK_SIZE

BoundWords = tuple[Word, Word, Word, Word, Word, Word, Word]
"""As of ``Bounds.bound_words``."""


class Entry(Protocol):
    """One ConsumeQueue entry."""

    @property
    def physical_offset(self) -> int:
        """The record's physical offset."""

    @property
    def size(self) -> int:
        """The record's size in bytes."""

    @property
    def tags_code(self) -> int:
        """The tags hash, delivery time or unit address."""


class LogView(Protocol):
    """The readable part of the commit log."""

    @property
    def min_offset(self) -> int:
        """The first physical offset."""

    @property
    def max_offset(self) -> int:
        """The readable end, a physical offset."""

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The whole segment that holds an offset, the position in it, and its readable end;
        None where nothing can be read."""


class QueueView(Protocol):
    """One topic-queue."""

    @property
    def topic(self) -> str:
        """The topic name."""

    @property
    def raw_topic(self) -> bytes:
        """The topic name in UTF-8."""

    @property
    def queue_id(self) -> int:
        """The queue id."""

    @property
    def min_index(self) -> int:
        """The first queue offset."""

    @property
    def max_index(self) -> int:
        """The next queue offset to be written."""

    def entry(self, index: int) -> Entry | None:
        """The entry at a queue offset; None outside of the files."""

    def block(self, index: int) -> tuple[memoryview, int] | None:
        """The whole file that holds entry ``index``, and the position of the entry in it."""

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file of ConsumeQueueExt units that holds an address, and its first address."""


class QueuesView(Protocol):
    """The queues of a store."""

    def get(self, topic: str, queue_id: int) -> QueueView | None:
        """The queue, or None."""

    def topics(self) -> list[str]:
        """Names of topics that have a queue, sorted."""

    def of_topic(self, topic: str) -> Iterable[QueueView]:
        """The queues of one topic, by queue id."""


class IndexFile(Protocol):
    """One file of the index."""

    @property
    def view(self) -> memoryview:
        """The whole file."""

    @property
    def slots(self) -> int:
        """Number of slots."""

    @property
    def index_num(self) -> int:
        """Number of items, item 0 included."""


class IndexView(Protocol):
    """The index of a store."""

    @property
    def files(self) -> tuple[IndexFile, ...] | None:
        """The files, oldest first; None where ``LogWindow.find_by_key`` cannot read them."""

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, below: int
    ) -> Iterator[int]:
        """Physical offsets below ``below`` of the key's hash, newest first; hash collisions and
        times up to a second outside the range included."""


class Bounds(Protocol):
    """The offsets and flags of the state page (``StatePage``, ``StatePageReader``)."""

    @property
    def epoch(self) -> int:
        """Number of times that stored bytes were changed."""

    @property
    def is_changing(self) -> bool:
        """Whether a recovery or repair is changing stored bytes."""

    @property
    def dispatched_offset(self) -> int:
        """Physical offset below which all records are dispatched."""

    @property
    def index_complete(self) -> bool:
        """Whether the index covers all dispatched records."""

    @property
    def log_end(self) -> int:
        """Physical offset below which the log has whole records, readable or not."""

    @property
    def bound_words(self) -> BoundWords:
        """The stored words of epoch, minimum, maximum, dispatched offset, index completeness,
        whether bytes change, and the log's end."""


def names_record(entry: Entry) -> bool:
    """Whether an entry names a record: not an unwritten or pre-blank one."""
    is_pre_blank = entry.size == PRE_BLANK_SIZE and entry.physical_offset == 0
    return entry.size > 0 and not is_pre_blank


def is_copy_of(entry: Entry, before: Entry | None) -> bool:
    """Whether an entry repeats the one before, as the filler of a hole does."""
    if before is None or entry.physical_offset != before.physical_offset:
        return False
    return entry.size == before.size


def first_from(queue: QueueView, offset: int, low: int, high: int) -> int:
    """Find the first entry, from ``low`` to before ``high``, whose record is at or above a physical
    offset; ``high`` when there is none."""
    end = high
    while low < high:
        middle = (low + high) // 2
        probe, entry = _next_named(queue, middle, high)
        if entry is None or entry.physical_offset >= offset:
            high = middle
        else:
            low = probe + 1
    return min(low, end)


def _next_named(queue: QueueView, start: int, stop: int) -> tuple[int, Entry | None]:
    for index in range(start, stop):
        entry = queue.entry(index)
        if entry is not None and names_record(entry):
            return index, entry
    return stop, None
