"""Read-only opening, beside a writer that is played here file by file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage._kernel import index_put
from mqstore.storage.codec import properties, record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.java_text import index_hash
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import OffsetOutOfRange, QueueUnknown, RecordExpired, StoreNotOpen
from mqstore.storage.index.file import file_size
from mqstore.storage.layout import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.metadata import format_file
from mqstore.storage.metadata.format_file import FormatFile, Sizes
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.queues.queue_entry import ENTRY
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams

SEGMENT = 4096
QUEUE_FILE = 5 * QUEUE_ENTRY_SIZE
SLOTS, ITEMS = 7, 4
HOST = Host.parse("127.0.0.1", 10911)
STORE_ID = "ab" * 16
BOOT_ID = "cd" * 16


class Writer:
    """Writes a store directory the plain way; readers see it through the page cache."""

    def __init__(self, root: Path) -> None:
        self.paths = StorePaths(root)
        self.files = PosixFileSystem()
        self.files.make_directories(self.paths.ours)
        sizes = Sizes.of(
            StoreConfig(
                mapped_file_size_commit_log=SEGMENT,
                mapped_file_size_consume_queue=QUEUE_FILE,
                max_hash_slot_num=SLOTS,
                max_index_num=ITEMS,
            )
        )
        content = FormatFile(
            store_id=STORE_ID, shard="0", epoch=1, rocketmq_format=StoreFormat.V4_9, sizes=sizes
        )
        self.paths.format.write_bytes(format_file.text_of(content))
        self.page = StatePage.create(self.files, self.paths.state, STORE_ID, BOOT_ID)
        self.page.set_index_complete(True)
        self.page.set_health(Health.READY)
        self.end = 0
        self.next: dict[tuple[str, int], int] = {}
        self.index_files = 0
        self.indexed = ITEMS

    def put(
        self, topic: str = "T", queue_id: int = 0, *, body: bytes = b"body", keys: str = "k"
    ) -> int:
        encoded = properties.encode({"KEYS": keys}, trailing_separator=False)
        message = Message(topic, queue_id, body, encoded, HOST, HOST, 0)
        size = record.size_of(message, 1)
        if self.end % SEGMENT + size + 8 > SEGMENT:
            self._blank()
        offset, index = self.end, self.next.get((topic, queue_id), 0)
        buffer = bytearray(size)
        record.encode_into(
            buffer,
            0,
            message,
            version=1,
            queue_offset=index,
            physical_offset=offset,
            store_timestamp_ms=1_000 + offset,
        )
        self._write_log(offset, buffer)
        self.end += size
        self.page.set_max(self.end)
        self.write_entry(topic, queue_id, index, offset, size)
        self._index(topic, keys, offset)
        self.page.set_dispatched(self.end)
        return offset

    def write_entry(self, topic: str, queue_id: int, index: int, offset: int, size: int) -> None:
        self.next[topic, queue_id] = index + 1
        at = index * QUEUE_ENTRY_SIZE
        path = self.paths.consume_queue / topic / str(queue_id) / segment_name(at - at % QUEUE_FILE)
        self._store(path, QUEUE_FILE, at % QUEUE_FILE, ENTRY.pack(offset, size, 0))

    def _blank(self) -> None:
        left = SEGMENT - self.end % SEGMENT
        buffer = bytearray(8)
        record.write_blank(buffer, 0, left)
        self._write_log(self.end, buffer)
        self.end += left

    def _write_log(self, offset: int, data: bytearray) -> None:
        path = self.paths.commit_log / segment_name(offset - offset % SEGMENT)
        self._store(path, SEGMENT, offset % SEGMENT, data)

    def _index(self, topic: str, key: str, offset: int) -> None:
        if self.indexed == ITEMS:
            self.index_files += 1
            self.indexed = 1
            self._store(self._index_path, file_size(SLOTS, ITEMS), 0, b"")
            self.page.bump_index_generation()
        mapped = self.files.map(self._index_path, writable=True)
        hashed = index_hash(f"{topic}#{key}")
        assert index_put(mapped.view, SLOTS, ITEMS, hashed, offset, 1_000 + offset)
        mapped.unmap()
        self.indexed += 1

    @property
    def _index_path(self) -> Path:
        return self.paths.index / f"{20260101000000000 + self.index_files}"

    @staticmethod
    def _store(path: Path, size: int, position: int, data: bytes | bytearray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            os.ftruncate(file.fileno(), size)
            file.seek(position)
            file.write(data)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "store")


@pytest.fixture
def reader(writer: Writer) -> Iterator[StoreReader]:
    with StoreReader.open(writer.paths.root, production_seams()) as opened:
        yield opened


def offsets(records: list[Record]) -> list[int]:
    return [found.physical_offset for found in records]


def test_a_directory_without_a_state_page_is_not_open(tmp_path: Path) -> None:
    with pytest.raises(StoreNotOpen) as refused:
        StoreReader.open(tmp_path, production_seams())
    assert refused.value.state == "absent"


def test_a_directory_without_format_json_is_not_open(writer: Writer) -> None:
    writer.paths.format.unlink()

    with pytest.raises(StoreNotOpen):
        StoreReader.open(writer.paths.root, production_seams())


def test_an_empty_store_has_no_topics(reader: StoreReader) -> None:
    assert reader.lookups.topics() == []
    with pytest.raises(OffsetOutOfRange):
        reader.lookups.by_physical_offset(0)


def test_what_arrives_after_opening_is_seen(writer: Writer, reader: StoreReader) -> None:
    wanted = [writer.put(body=bytes(300)) for _ in range(40)]

    assert writer.end > 3 * SEGMENT
    assert [reader.lookups.by_physical_offset(each).physical_offset for each in wanted] == wanted
    assert offsets(reader.lookups.records("T", 0, 0, count=100).records) == wanted
    assert reader.lookups.queue_range("T", 0).max_offset == 40
    assert offsets(reader.lookups.by_key("T", "k", limit=100).records) == wanted[::-1]


def test_new_queues_are_noticed(writer: Writer, reader: StoreReader) -> None:
    with pytest.raises(QueueUnknown):
        reader.lookups.queue_range("A", 1)
    writer.put("A", 1)
    writer.put("A", 0)

    assert [each.queue_id for each in reader.lookups.queues("A")] == [0, 1]
    assert reader.lookups.topics() == ["A"]


def test_each_message_is_seen_as_it_comes(writer: Writer, reader: StoreReader) -> None:
    for count in range(1, 30):
        offset = writer.put()
        pull = reader.lookups.records("T", 0, count - 1)
        assert offsets(pull.records) == [offset]
        assert pull.max_offset == count
        assert reader.lookups.records("T", 0, count).status is PullStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.parametrize("topic", ["..", "../T", "T/0", "", "\0", "a" * 5000])
def test_topics_that_are_no_file_names_are_unknown(
    writer: Writer, reader: StoreReader, topic: str
) -> None:
    writer.put()

    with pytest.raises(QueueUnknown):
        reader.lookups.queue_range(topic, 0)


def test_stray_files_among_the_queues_are_ignored(writer: Writer, reader: StoreReader) -> None:
    writer.put()
    (writer.paths.consume_queue / "T" / "not-a-number").mkdir()
    (writer.paths.consume_queue / "T" / "07").mkdir()
    (writer.paths.consume_queue / "file").write_text("x")
    (writer.paths.commit_log / "notes.txt").write_text("x")
    (writer.paths.index / "notes.txt").write_text("x")

    assert [each.queue_id for each in reader.lookups.queues("T")] == [0]
    assert len(reader.lookups.by_key("T", "k").records) == 1


def test_expiry_is_followed(writer: Writer, reader: StoreReader) -> None:
    wanted = [writer.put(body=bytes(300)) for _ in range(40)]
    assert reader.lookups.by_physical_offset(0).size
    kept = [each for each in wanted if each >= 2 * SEGMENT]

    writer.page.set_min(2 * SEGMENT)
    for base in (0, SEGMENT):
        (writer.paths.commit_log / segment_name(base)).unlink()

    with pytest.raises(RecordExpired):
        reader.lookups.by_physical_offset(0)
    first = wanted.index(kept[0])
    assert reader.lookups.queue_range("T", 0).min_offset == first
    assert offsets(reader.lookups.records("T", 0, 0, count=100).records) == kept
    assert offsets(reader.lookups.by_key("T", "k", limit=100).records) == kept[::-1]


def test_an_answer_outlives_the_segment_it_came_from(writer: Writer, reader: StoreReader) -> None:
    writer.put(body=b"kept")
    found = reader.lookups.by_physical_offset(0)
    writer.page.set_min(SEGMENT)
    (writer.paths.commit_log / segment_name(0)).unlink()

    assert found.body == b"kept"


def test_pre_blank_entries_come_before_the_first_message(
    writer: Writer, reader: StoreReader
) -> None:
    for index in range(3):
        writer.write_entry("T", 0, 5 + index, 0, PRE_BLANK_SIZE)
    offset = writer.put()

    assert reader.lookups.queue_range("T", 0).min_offset == 5
    assert offsets(reader.lookups.records("T", 0, 0).records) == [offset]

    writer.page.set_min(1)
    assert reader.lookups.queue_range("T", 0).min_offset == 9


def test_entries_are_believed_only_when_dispatched(writer: Writer, reader: StoreReader) -> None:
    writer.put()
    second = writer.put()
    writer.page.set_dispatched(second)
    assert len(reader.lookups.records("T", 0, 0).records) == 1

    writer.page.set_dispatched(writer.end)
    assert len(reader.lookups.records("T", 0, 0).records) == 2


def test_a_recovery_that_cuts_is_followed(writer: Writer, reader: StoreReader) -> None:
    first = writer.put()
    cut = writer.put(body=b"cut away")
    assert len(reader.lookups.records("T", 0, 0).records) == 2
    assert reader.lookups.queue_range("T", 0).max_offset == 2

    with writer.page.changing():
        writer.page.set_dispatched(cut)
        writer.page.set_max(cut)
        writer.end = cut
        writer.write_entry("T", 0, 1, 0, 0)
        writer.next["T", 0] = 1
    again = writer.put(body=b"new")

    assert again == cut
    assert reader.lookups.by_physical_offset(cut).body == b"new"
    assert offsets(reader.lookups.records("T", 0, 0).records) == [first, cut]


def test_files_that_recovery_replaced_are_mapped_afresh(
    writer: Writer, reader: StoreReader
) -> None:
    writer.put(body=b"old!")
    assert reader.lookups.by_physical_offset(0).body == b"old!"
    for directory in (writer.paths.commit_log, writer.paths.consume_queue, writer.paths.index):
        shutil.rmtree(directory)
    writer.page.set_max(0)
    writer.page.set_dispatched(0)
    writer.end, writer.indexed = 0, ITEMS
    writer.next.clear()
    writer.page.advance_epoch()

    writer.put(body=b"new!")

    assert reader.lookups.by_physical_offset(0).body == b"new!"
    assert [found.body for found in reader.lookups.records("T", 0, 0).records] == [b"new!"]
    assert [found.body for found in reader.lookups.by_key("T", "k").records] == [b"new!"]


def test_an_index_that_is_being_rebuilt_is_said_to_be_incomplete(
    writer: Writer, reader: StoreReader
) -> None:
    writer.put()
    writer.page.set_index_complete(False)

    assert not reader.lookups.by_key("T", "k").complete


def test_removed_index_files_are_let_go(writer: Writer, reader: StoreReader) -> None:
    for _ in range(10):
        writer.put()
    assert len(reader.lookups.by_key("T", "k").records) == 10
    first = sorted(writer.paths.index.iterdir())[0]

    first.unlink()
    writer.page.bump_index_generation()

    assert len(reader.lookups.by_key("T", "k").records) == 10 - (ITEMS - 1)


def test_writer_is_alive_while_the_lock_is_held(writer: Writer, reader: StoreReader) -> None:
    before = reader.writer_is_alive
    lock = writer.files.lock(writer.paths.lock)
    during = reader.writer_is_alive
    lock.release()

    assert (before, during, reader.writer_is_alive) == (False, True, False)


def test_arrivals_wake_a_reader(writer: Writer, reader: StoreReader) -> None:
    seen = reader.state.arrivals
    assert not reader.wait_for_arrival(seen, 0.01)
    writer.put()
    assert reader.wait_for_arrival(seen, 60)


def test_a_snapshot_shows_bounds_and_health(writer: Writer, reader: StoreReader) -> None:
    writer.put()

    found = reader.snapshot()

    assert (found.min_offset, found.max_offset, found.dispatched_offset) == (
        0,
        writer.end,
        writer.end,
    )
    assert found.health is Health.READY
    assert found.store_id == STORE_ID


def test_a_queue_that_was_looked_at_before_its_first_file_has_the_right_minimum(
    writer: Writer, reader: StoreReader
) -> None:
    (writer.paths.consume_queue / "T" / "0").mkdir(parents=True)
    assert reader.lookups.queue_range("T", 0).max_offset == 0
    for index in range(3):
        writer.write_entry("T", 0, 5 + index, 0, PRE_BLANK_SIZE)
    writer.put()

    found = reader.lookups.queue_range("T", 0)
    assert (found.min_offset, found.max_offset) == (5, 9)
