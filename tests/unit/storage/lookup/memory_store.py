"""A store in memory for look-ups: a log of real records, with small queues and index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqstore.storage._kernel import LogWindow, Word
from mqstore.storage.codec import properties, record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.layout import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.lookup.views import BoundWords
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.block_guard import BlockGuard
from mqstore.storage.queues.queue_entry import ENTRY, QueueEntry
from mqstore.storage.system.posix_files import PosixFileSystem

HOST = Host.parse("10.1.2.3", 10911)
HOST_V6 = Host.parse("fe80::1", 10911)
LOG_SIZE = 1 << 20
HOLE = QueueEntry(0, PRE_BLANK_SIZE, 0)


@dataclass
class MemoryLog:
    data: bytearray = field(default_factory=lambda: bytearray(LOG_SIZE))
    min_offset: int = 0
    max_offset: int = 0
    cuts: list[int] = field(default_factory=list)
    """Beginnings of further segments."""

    def append(self, content: bytes | bytearray) -> None:
        self.data[self.max_offset : self.max_offset + len(content)] = content
        self.max_offset += len(content)

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        if not self.min_offset <= offset < self.max_offset:
            return None
        base = max((cut for cut in self.cuts if cut <= offset), default=0)
        stop = min((cut for cut in self.cuts if cut > offset), default=LOG_SIZE)
        end = min(stop, self.max_offset) - base
        return memoryview(self.data)[base:stop], offset - base, end


@dataclass
class MemoryQueue:
    topic: str
    queue_id: int
    stored: list[QueueEntry] = field(default_factory=list)
    min_index: int = 0

    @property
    def raw_topic(self) -> bytes:
        return self.topic.encode()

    @property
    def max_index(self) -> int:
        return len(self.stored)

    def block(self, index: int) -> tuple[memoryview, int]:
        """Files of four entries."""
        first = index - index % 4
        packed = b"".join(ENTRY.pack(*entry) for entry in self.stored[first : first + 4])
        return memoryview(packed), (index - first) * QUEUE_ENTRY_SIZE

    def units(self, address: int) -> None:
        """The store has no ConsumeQueueExt."""

    def entry(self, index: int) -> QueueEntry | None:
        return self.stored[index] if 0 <= index < len(self.stored) else None


class MemoryIndex:
    """Every key has the same hash: all offsets are candidates of every query."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    @property
    def files(self) -> None:
        """The store has none."""

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, below: int
    ) -> Iterator[int]:
        return (offset for offset in reversed(self.offsets) if offset < below)


class Bounds:
    """Words as those of a state page; minimum and maximum are the log's."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        page = memoryview(bytearray(56))
        self._words = (
            Word(page, 0),
            Word(page, 8),
            Word(page, 16),
            Word(page, 24),
            Word(page, 32),
            Word(page, 40),
            Word(page, 48),
        )
        self.index_complete = True

    @property
    def bound_words(self) -> BoundWords:
        return self._words

    @property
    def epoch(self) -> int:
        """Looked at before and after everything else."""
        _, minimum, maximum, *_ = self._words
        minimum.value, maximum.value = self._log.min_offset, self._log.max_offset
        return self._words[0].value

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._words[0].value = value

    @property
    def log_end(self) -> int:
        return self._log.max_offset

    @property
    def is_changing(self) -> bool:
        return self._words[5].value != 0

    @property
    def index_complete(self) -> bool:
        return self._words[4].value != 0

    @index_complete.setter
    def index_complete(self, value: bool) -> None:
        self._words[4].value = value

    @property
    def dispatched_offset(self) -> int:
        return self._words[3].value

    @dispatched_offset.setter
    def dispatched_offset(self, value: int) -> None:
        self._words[3].value = value


def no_blocks(bounds: Bounds) -> BlockGuard:
    """The blocks of a store without block checksums."""
    blocks = BlockFiles(PosixFileSystem(), Path("/nowhere"), 1 << 20, "0" * 32)
    return BlockGuard(blocks, LogWindow(*bounds.bound_words))


class Store:
    """A store in memory; ``put`` appends, queues and indexes."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.queues: dict[tuple[str, int], MemoryQueue] = {}
        self.index = MemoryIndex()
        self.bounds = Bounds(self.log)
        self.lookups = Lookups(self.log, self, self.index, self.bounds, no_blocks(self.bounds))

    def get(self, topic: str, queue_id: int) -> MemoryQueue | None:
        return self.queues.get((topic, queue_id))

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.queues})

    def of_topic(self, topic: str) -> Iterable[MemoryQueue]:
        return [queue for _, queue in sorted(self.queues.items()) if queue.topic == topic]

    def put(
        self,
        topic: str = "T",
        queue_id: int = 0,
        *,
        body: bytes = b"body",
        keys: str = "",
        uniq_key: str = "",
        stored_ms: int = 1_000,
        host: Host = HOST,
        dispatch: bool = True,
    ) -> int:
        named = {"UNIQ_KEY": uniq_key, "KEYS": keys}
        encoded = properties.encode(
            {name: value for name, value in named.items() if value},
            trailing_separator=StoreFormat.V4_9.trailing_property_separator,
        )
        message = Message(topic, queue_id, body, encoded, HOST, host, 0)
        queue = self.queues.setdefault((topic, queue_id), MemoryQueue(topic, queue_id))
        offset = self.log.max_offset
        buffer = bytearray(record.size_of(message, 1))
        record.encode_into(
            buffer,
            0,
            message,
            version=1,
            queue_offset=queue.max_index,
            physical_offset=offset,
            store_timestamp_ms=stored_ms,
        )
        self.log.append(buffer)
        if dispatch:
            queue.stored.append(QueueEntry(offset, len(buffer), 0))
            self.index.offsets.append(offset)
            self.bounds.dispatched_offset = self.log.max_offset
        return offset

    def put_blank(self, size: int) -> None:
        blank = bytearray(size)
        record.write_blank(blank, 0, size)
        self.log.append(blank)
        self.bounds.dispatched_offset = self.log.max_offset

    def damage_body(self, offset: int, body: bytes = b"body") -> None:
        self.log.data[self.log.data.index(body, offset)] ^= 1


def offsets(records: list[Record]) -> list[int]:
    return [found.physical_offset for found in records]
