"""Writes small commit logs the way a broker does, without the code under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, encode_into, size_of, write_blank
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import BLANK_RECORD_SIZE, StoreFormat
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery.view import CheckpointTimes, StoreView, find_segments
from mqstore.storage.system.posix_files import PosixFileSystem

SEGMENT = 4096
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=200,
)
HOST = Host.parse("127.0.0.1", 10911)
START_MS = 1_700_000_000_000


def message(topic: str = "T", queue_id: int = 0, body: bytes = b"hello", **more: object) -> Message:
    properties = b"KEYS\x01k1\x02TAGS\x01a"
    return Message(topic, queue_id, body, properties, HOST, HOST, START_MS, **more)  # type: ignore[arg-type] # only the ints of a Message


@dataclass
class LogBuilder:
    """Segments in memory; ``write`` puts them into a directory."""

    segments: list[bytearray] = field(default_factory=lambda: [bytearray(SEGMENT)])
    position: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    """(offset, size) of each."""
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    step_ms: int = 10_000

    @property
    def end(self) -> int:
        return (len(self.segments) - 1) * SEGMENT + self.position

    def put(self, one: Message, *, queue_offset: int | None = None) -> int:
        size = size_of(one, 1)
        left = SEGMENT - self.position
        if size + BLANK_RECORD_SIZE > left:
            write_blank(self.segments[-1], self.position, left)
            self.segments.append(bytearray(SEGMENT))
            self.position = 0
        queue = one.topic, one.queue_id
        expected = self.next_offsets.get(queue, 0)
        given = expected if queue_offset is None else queue_offset
        offset = self.end
        encode_into(
            self.segments[-1],
            self.position,
            one,
            version=1,
            queue_offset=given,
            physical_offset=offset,
            store_timestamp_ms=START_MS + len(self.records) * self.step_ms,
        )
        self.next_offsets[queue] = max(expected, given + 1)
        self.records.append((offset, size))
        self.position += size
        return offset

    def fill(self, count: int, *, queues: int = 3, body: int = 100) -> LogBuilder:
        for number in range(count):
            self.put(message(queue_id=number % queues, body=bytes([number % 251]) * body))
        return self

    def poke(self, offset: int, data: bytes) -> None:
        position = offset % SEGMENT
        self.segments[offset // SEGMENT][position : position + len(data)] = data

    def byte(self, offset: int) -> int:
        return self.segments[offset // SEGMENT][offset % SEGMENT]

    def flip(self, offset: int) -> None:
        self.poke(offset, bytes([self.byte(offset) ^ 0xFF]))

    def write(self, root: Path) -> StorePaths:
        paths = StorePaths(root)
        paths.commit_log.mkdir(parents=True, exist_ok=True)
        for number, segment in enumerate(self.segments):
            (paths.commit_log / segment_name(number * SEGMENT)).write_bytes(segment)
        return paths


def view_of(
    paths: StorePaths,
    *,
    abort: bool = True,
    watermark: int | None = None,
    checkpoint: CheckpointTimes | None = None,
) -> StoreView:
    files = PosixFileSystem()
    return StoreView(
        files=files,
        paths=paths,
        config=CONFIG,
        store_format=StoreFormat.V4_9,
        segments=find_segments(files, paths, SEGMENT),
        abort=abort,
        checkpoint=checkpoint or CheckpointTimes(),
        watermark=watermark,
    )
