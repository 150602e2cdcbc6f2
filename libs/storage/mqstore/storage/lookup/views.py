"""What look-ups read from: a log, its queues and its index, as the writer or a reader has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from mqstore.storage._kernel import Word
from mqstore.storage.layout import PRE_BLANK_SIZE


class Entry(Protocol):
    """One ConsumeQueue entry."""

    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def tags_code(self) -> int: ...


class LogView(Protocol):
    """The commit log as far as it may be read."""

    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        """The whole segment that holds an offset, the position in it, and its readable end;
        None where nothing can be read."""


class QueueView(Protocol):
    """One topic-queue."""

    @property
    def topic(self) -> str: ...
    @property
    def raw_topic(self) -> bytes: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def min_index(self) -> int: ...
    @property
    def max_index(self) -> int: ...
    def entry(self, index: int) -> Entry | None: ...
    def block(self, index: int) -> tuple[memoryview, int] | None:
        """The whole file that holds entry ``index``, and the position of the entry in it."""

    def units(self, address: int) -> tuple[memoryview, int] | None:
        """The whole file of ConsumeQueueExt units that holds an address, and where it begins."""


class QueuesView(Protocol):
    def get(self, topic: str, queue_id: int) -> QueueView | None: ...
    def topics(self) -> list[str]:
        """Names of topics that have a queue, sorted."""

    def of_topic(self, topic: str) -> Iterable[QueueView]:
        """By queue id."""


class IndexFile(Protocol):
    """One file of the index."""

    @property
    def view(self) -> memoryview: ...
    @property
    def slots(self) -> int: ...
    @property
    def index_num(self) -> int: ...


class IndexView(Protocol):
    @property
    def files(self) -> tuple[IndexFile, ...] | None:
        """As they are now, oldest first; None where ``LogWindow.keyed`` cannot read them."""

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, below: int
    ) -> Iterator[int]:
        """Physical offsets below ``below`` under the key's hash, newest first; hash collisions
        and a second's vagueness at both ends included."""


class Bounds(Protocol):
    """What the state page says; ``StatePage`` and ``StatePageReader`` are such."""

    @property
    def epoch(self) -> int: ...
    @property
    def is_changing(self) -> bool: ...
    @property
    def dispatched_offset(self) -> int: ...
    @property
    def index_complete(self) -> bool: ...
    @property
    def bound_words(self) -> tuple[Word, Word, Word, Word, Word, Word]:
        """Epoch, minimum, maximum and dispatched offset, whether the index is complete, and whether
        bytes change, where they are stored."""


def names_record(entry: Entry) -> bool:
    """False for one that was never written, and for a pre-blank one."""
    is_pre_blank = entry.size == PRE_BLANK_SIZE and entry.physical_offset == 0
    return entry.size > 0 and not is_pre_blank


def repeats(entry: Entry, before: Entry | None) -> bool:
    """As the filler of a hole does."""
    if before is None or entry.physical_offset != before.physical_offset:
        return False
    return entry.size == before.size


def first_from(queue: QueueView, offset: int, low: int, high: int) -> int:
    """The first entry, from ``low`` to before ``high``, whose record stands at or after a physical
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
