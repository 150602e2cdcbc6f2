"""A log of a few small segments in memory, and the derived files of it on a real directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mqstore.storage.codec import properties, record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import BLANK_RECORD_SIZE, TRANSACTION_MASK, StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.checkpoint import Checkpoint

SEGMENT = 4096
HOST = Host.parse("10.1.2.3", 10911)
HOST_V6 = Host.parse("fe80::1", 10911)
BORN_MS = 1_700_000_000_000
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X


def small_config(**changes: int | bool | str) -> StoreConfig:
    """Queue files of 10 entries, index files of 7 slots and 9 items, unless said otherwise."""
    sizes: dict[str, int | bool | str] = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 200,
        "max_hash_slot_num": 7,
        "max_index_num": 9,
    }
    return StoreConfig.model_validate(sizes | changes)


@dataclass
class SmallLog:
    """Records as a commit log places them: END_OF_FILE blanks, queue offsets counted."""

    store_format: StoreFormat = V4
    segments: list[bytearray] = field(default_factory=lambda: [bytearray(SEGMENT)])
    wrote: list[int] = field(default_factory=lambda: [0])
    min_offset: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)

    @property
    def max_offset(self) -> int:
        return (len(self.segments) - 1) * SEGMENT + self.wrote[-1]

    def view_from(self, offset: int) -> tuple[memoryview, int, int] | None:
        number, position = divmod(offset, SEGMENT)
        if number >= len(self.segments) or offset < self.min_offset or number in self.missing:
            return None
        return memoryview(self.segments[number]).toreadonly(), position, self.wrote[number]

    def select(self, offset: int, size: int) -> memoryview | None:
        place = self.view_from(offset)
        if place is None or place[1] + size > place[2]:
            return None
        return place[0][place[1] : place[1] + size]

    def put(
        self,
        topic: str = "topic",
        queue_id: int = 0,
        *,
        body: bytes = b"body",
        props: dict[str, str] | None = None,
        sys_flag: int = 0,
        queue_offset: int | None = None,
        store_ms: int = BORN_MS,
        born_host: Host = HOST,
        prepared_transaction_offset: int = 0,
    ) -> int:
        """Append one record; returns its physical offset."""
        encoded = properties.encode(
            props or {}, trailing_separator=self.store_format.trailing_property_separator
        )
        message = Message(
            topic, queue_id, body, encoded, born_host, HOST, BORN_MS, sys_flag=sys_flag
        )
        message.prepared_transaction_offset = prepared_transaction_offset
        size = record.size_of(message, 1)
        if self.wrote[-1] + size + BLANK_RECORD_SIZE > SEGMENT:
            self.roll()
        at, offset = self.wrote[-1], self.max_offset
        if queue_offset is None:
            queue_offset = self._next(topic, queue_id, sys_flag)
        record.encode_into(
            memoryview(self.segments[-1]),
            at,
            message,
            version=1,
            queue_offset=queue_offset,
            physical_offset=offset,
            store_timestamp_ms=store_ms,
        )
        self.wrote[-1] += size
        return offset

    def roll(self) -> None:
        """Close the segment with a blank record and begin the next."""
        left = SEGMENT - self.wrote[-1]
        record.write_blank(memoryview(self.segments[-1]), self.wrote[-1], left)
        self.wrote[-1] = SEGMENT
        self.segments.append(bytearray(SEGMENT))
        self.wrote.append(0)

    def damage(self, offset: int, data: bytes) -> None:
        number, position = divmod(offset, SEGMENT)
        self.segments[number][position : position + len(data)] = data

    def _next(self, topic: str, queue_id: int, sys_flag: int) -> int:
        if sys_flag & TRANSACTION_MASK in (0x4, 0xC):
            return 0
        offset = self.next_offsets.get((topic, queue_id), 0)
        self.next_offsets[topic, queue_id] = offset + 1
        return offset


@dataclass
class Marks:
    """The values that the dispatcher publishes."""

    dispatched: int = -1
    index_complete: bool | None = None

    def set_dispatched(self, offset: int) -> None:
        self.dispatched = offset

    def set_index_complete(self, complete: bool) -> None:
        self.index_complete = complete


class SmallStore:
    """Queues, index and dispatcher over a ``SmallLog``."""

    def __init__(
        self,
        root: Path,
        log: SmallLog,
        config: StoreConfig | None = None,
        *,
        position: int = 0,
        index_position: int | None = None,
        indexed: bool = True,
        safe: bool = True,
    ) -> None:
        self.log = log
        self.config = config or small_config()
        self.paths = StorePaths(root)
        self.seams = production_seams()
        self.marks = Marks()
        self.checkpoint = Checkpoint.open(self.paths.checkpoint, log.store_format, self.seams)
        self.queues = ConsumeQueues(self.paths, self.config.queue_file_size, self.seams)
        self.strays = self.queues.load()
        self.index = IndexService(
            self.paths, self.config, log.store_format, self.seams, checkpoint=self.checkpoint
        )
        self.index_load = self.index.load(safe=safe, index_ms=self.checkpoint.index_ms + 1)
        self.dispatcher = Dispatcher(
            log,
            self.queues,
            self.index if indexed else None,
            self.config,
            self.marks,
            position=position,
            index_position=index_position,
            store_format=log.store_format,
        )

    def dispatch(self) -> Dispatcher:
        self.dispatcher.run_to_end()
        return self.dispatcher

    def close(self) -> None:
        self.queues.flush()
        self.index.flush(everything=True)
        self.queues.close()
        self.index.close()
        self.checkpoint.close()

    def entries(self, topic: str = "topic", queue_id: int = 0) -> list[tuple[int, int, int]]:
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return []
        return [(e.physical_offset, e.size, e.tags_code) for _, e in queue.entries(0, 1 << 60)]

    def index_bytes(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.paths.index.glob("*"))]
