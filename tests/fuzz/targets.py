"""Fuzz targets: each takes a mutated input, and raises for behaviour that is a defect.

Allowed are the named errors of ``mqstore.storage.errors`` where an interface promises them. Inputs
stand between two forbidden pages, so that a read outside them ends the process.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqstore.storage._kernel import (
    Defect,
    IndexWindow,
    QueueWindow,
    Stop,
    check_record,
    check_run,
    dispatch_run,
    find_record,
    index_find,
    index_put,
)
from mqstore.storage.codec import cursors, message_id, properties, record
from mqstore.storage.codec.hosts import PORT_MAX, Host
from mqstore.storage.codec.java_text import decode_utf8
from mqstore.storage.codec.record import Blank, Message, Record
from mqstore.storage.errors import (
    ConfigTableError,
    CursorError,
    MessageIdError,
    RecordError,
    StoreDamaged,
    StoreUnsupported,
)
from mqstore.storage.index.file import IndexFile, file_size
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.log.defects import Stretch, placeable_record
from mqstore.storage.log.multi_dispatch import further_queues
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.metadata import format_file, manifest
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queues import queue_key
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.tables import java_json
from mqstore.storage.tables.config_tables import ConsumerOffsets, DelayOffsets, TopicTable
from mqstore.storage.tables.table import Table
from tests.fuzz import pulls, stores
from tests.fuzz.flips import fields_of
from tests.fuzz.guarded import GuardedMemory
from tests.fuzz.mutate import Mutator
from tests.unit.storage import kernel_model
from tests.unit.storage.log_windows import window_over
from tests.unit.storage.record_examples import with_record_crc

ROOM = 1 << 16
INDEX_MAX = 1 << 58
"""Queue offsets whose entries a file can hold."""
SLOTS, ITEMS = 7, 24
HOST, HOST_V6 = stores.BORN, stores.BORN_V6
TIME = stores.BORN_MS
Numbers = list[tuple[int, int]]


class Target(Protocol):
    def one(self) -> None:
        """Try one mutated input."""


@dataclass(slots=True)
class Seed:
    """An input to mutate, and where its numbers stand."""

    data: bytes
    numbers: Numbers


def record_seeds() -> list[Seed]:
    """V1 and V2, both hosts, with and without body, properties and record CRC, delayed,
    multi-dispatched, transactional, and a blank."""
    named = b"UNIQ_KEY\x01U1\x02KEYS\x01a b  c\x02TAGS\x01t\x02"
    multi = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x013,4"
    messages = [
        _message(b"body", named),
        _message(b"", b""),
        _message(None, named[:-1], born_host=HOST_V6),
        _message(b"x" * 700, b"a\x01" + b"v" * 600, store_host=HOST_V6, born_host=HOST_V6),
        _message(b"delayed", b"DELAY\x013\x02TAGS\x01t", topic="SCHEDULE_TOPIC_XXXX"),
        _message(b"many", multi, queue_id=2),
        _message(b"half", named, sys_flag=4),
        _message(b"undone", named, sys_flag=12),
        _message("日本語😀".encode(), "KEYS\x01ключ 😀".encode(), topic="日本"),
    ]
    encoded = [
        kernel_model.encode(each, version, 5, 0, TIME) for each in messages for version in (1, 2)
    ]
    encoded += [with_record_crc(_message(b"guarded", named), version) for version in (1, 2)]
    seeds = [Seed(data, _numbers_of(data)) for data in encoded]
    return [*seeds, Seed(struct.pack(">iI", 64, 0xCBD43194) + bytes(56), [(0, 4), (4, 4)])]


def _message(
    body: bytes | None,
    encoded: bytes,
    *,
    topic: str = "Topic",
    queue_id: int = 0,
    sys_flag: int = 0,
    born_host: Host = HOST,
    store_host: Host = HOST,
) -> Message:
    return Message(topic, queue_id, body, encoded, born_host, store_host, TIME, sys_flag=sys_flag)


def _numbers_of(data: bytes) -> Numbers:
    return [
        (field.start, field.end - field.start)
        for field in fields_of(data)
        if field.name not in ("body", "topic", "properties")
    ]


class Records:
    """The kernel and everything that reads a record: the busiest target."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        self._seeds = record_seeds()
        self._pool = [seed.data for seed in self._seeds]
        self._memory = GuardedMemory(ROOM)
        self._queues = GuardedMemory(QUEUE_ENTRY_SIZE * 8)
        self._index = GuardedMemory(file_size(SLOTS, ITEMS))

    def one(self) -> None:
        """Read one mutated record in every way."""
        draw = self._mutator.random
        seed = draw.choice(self._seeds)
        data = self._mutator.mutated(seed.data, seed.numbers, self._pool)[:ROOM]
        place = self._memory.at_end if draw.random() < 0.8 else self._memory.at_begin
        view = place(data)
        defect, size = check_record(view, 0, len(view), 0, True)
        assert size <= len(view) or defect == Defect.BLANK, (defect, size)
        self._decode(view, defect, size)
        if draw.random() < 0.25:
            self._walk(view)
            self._dispatch(view)

    def _decode(self, view: memoryview, defect: Defect, size: int) -> None:
        try:
            found = record.decode(view, 0, len(view), physical_offset=0)
        except RecordError as error:
            assert defect != Defect.NONE, error
            assert error.why
            lenient = placeable_record(Stretch(view, 0, len(view), 0))
            if lenient is not None:
                _use(lenient)
            return
        assert defect == Defect.NONE
        assert found.size == size <= len(view)
        body_ends = len(found.body) + len(found.raw_topic) + len(found.raw_properties)
        assert body_ends + 91 <= size, "no part may reach outside the record"
        own = (found.raw_topic, found.queue_id, found.queue_offset)
        window = window_over(view)
        for named in (size, size + 1):
            entry = struct.pack(">qiq", 0, named, 0)
            where = memoryview(entry), 0, *own, 1, 0, size
            is_plain = named == size and not found.is_tombstone
            raw = [bytes(view[:size])] if is_plain else []
            assert [each.raw for each in window.records(Record, *where)[0]] == raw
            assert [bytes(each) for each in window.slices(*where)[0]] == raw
            if 0 <= found.queue_offset < INDEX_MAX:
                entries = self._queues.at_end(entry + bytes(QUEUE_ENTRY_SIZE))
                queue = pulls.OneFile(entries, found.queue_offset, 1)
                assert pulls.pull(window, *own[:2], queue) in ([], raw)
        pulls.require_json(found)
        _use(found)

    def _walk(self, view: memoryview) -> None:
        """From any place, over whatever follows."""
        start = self._mutator.random.randrange(len(view) + 1)
        _, position, count, _ = check_run(
            view, start, len(view), 0, verify_body=True, max_records=100, starts=array("q")
        )
        assert start <= position <= len(view)
        assert count <= 100
        found = find_record(view, 0, len(view), 0, True)
        assert -1 <= found < max(len(view), 1)
        for number, item in enumerate(record.scan(view, 0, len(view), 0)):
            assert number <= len(view) // 8
            assert item is not None
            if isinstance(item, Blank):
                break

    def _dispatch(self, view: memoryview) -> None:
        window, index = QueueWindow(), IndexWindow()
        entries = self._queues.at_end(bytes(QUEUE_ENTRY_SIZE * 8))
        items = self._index.at_end(bytes(file_size(SLOTS, ITEMS)))
        window.attach(entries, 0, 8)
        window.next_index = 5
        index.attach(items, SLOTS, ITEMS)
        queues = {queue_key(topic, 0): window for topic in (b"Topic", "日本".encode())}
        stop, position, handled, _ = dispatch_run(
            view,
            0,
            len(view),
            0,
            queues,
            index,
            index_tags=True,
            skip_index_below=0,
            max_records=50,
            touched=set(),
        )
        assert isinstance(stop, Stop)
        assert 0 <= position <= len(view)
        assert 5 <= window.next_index <= min(8, 5 + handled)
        window.attach(None, 0, 0)
        index.attach(None, 0, 0)


def _use(found: record.Record) -> None:
    """Everything that services derive from a record."""
    _ = found.tags_code, found.tags, found.uniq_key, str(found.born_host), str(found.store_host)
    assert (found.properties or {}) == _plain_properties(found.raw_properties)
    properties.index_keys(found.uniq_key, found.keys)
    further_queues(found)
    if found.physical_offset >= 0 and found.store_host.port <= PORT_MAX:
        message_id.decode(found.offset_message_id)


def _plain_properties(data: bytes) -> dict[str, str]:
    """As RocketMQ reads them, in plain Python."""
    pairs = (part.partition("\x01") for part in decode_utf8(data).split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


class IndexFiles:
    """Chains, headers and insertion of a damaged index file."""

    def __init__(self, mutator: Mutator, root: Path) -> None:
        self._mutator = mutator
        self._memory = GuardedMemory(file_size(SLOTS, ITEMS))
        view = self._memory.at_end(bytes(file_size(SLOTS, ITEMS)))
        for number in range(ITEMS // 2):
            index_put(view, SLOTS, ITEMS, number * 37 % 11, number * 100, TIME + number * 1500)
        self._seed = bytes(view)
        self._numbers = [(at, 8) for at in (0, 8, 16, 24)] + [(32, 4), (36, 4)]
        self._numbers += [(40 + 4 * slot, 4) for slot in range(SLOTS)]
        items = 40 + 4 * SLOTS
        for number in range(ITEMS):
            at = items + 20 * number
            self._numbers += [(at, 4), (at + 4, 8), (at + 12, 4), (at + 16, 4)]
        path = root / "20240101000000000"
        path.write_bytes(self._seed)
        self._file = IndexFile(MappedFile.open(PosixFileSystem(), path), SLOTS, ITEMS)

    def one(self) -> None:
        changed = self._mutator.mutated(self._seed, self._numbers)
        data = bytes(changed.ljust(len(self._seed), b"\0")[: len(self._seed)])
        view = self._memory.at_end(data)
        for key_hash in range(11):
            found, _ = index_find(view, SLOTS, ITEMS, key_hash, 0, 2**62, 1000)
            assert len(found) <= ITEMS, "a chain never leads round"
        file = self._file
        file.view = view
        if file.damage() is None:
            assert len(list(file.find(3, 0, 2**62))) <= ITEMS + 1
            assert len(list(file.find(3, 0, 2**62, 500))) <= ITEMS + 1
            file.trailing_items_of(300)
            file.repair_tail()
            file.put(5, 10_000, TIME)
            assert len(list(file.find(5, 0, 2**62))) <= ITEMS + 1


class Texts:
    """Config tables, our own JSON files, the state page, message ids and cursors."""

    def __init__(self, mutator: Mutator, root: Path) -> None:
        self._mutator = mutator
        stores.make(root, StoreFormat.V5_X)
        paths = self._paths = StorePaths(root)
        self._seams = stores.seams(stores.overlay())
        tables = {TopicTable: TOPICS, ConsumerOffsets: OFFSETS, DelayOffsets: DELAYS}
        self._targets: list[Callable[[], None]] = [
            *(self._table(kind, text) for kind, text in tables.items()),
            self._manifest(paths.manifest.read_bytes()),
            self._format(paths.format.read_bytes()),
            self._state(paths.state.read_bytes()),
            self._message_id,
            self._cursor,
        ]

    def one(self) -> None:
        self._mutator.random.choice(self._targets)()

    def _changed(self, data: bytes, numbers: Sequence[tuple[int, int]] = ()) -> bytes:
        return bytes(self._mutator.mutated(data, numbers, [b'{"a":[1,{2:3}]}', b"[" * 3000]))

    def _table(self, kind: type[Table], text: str) -> Callable[[], None]:
        path = self._paths.config / kind.file_name

        def one() -> None:
            files = stores.overlay()
            files.make_directories(path.parent)
            files.write(path, self._changed(text.encode()))
            try:
                table = kind.load(self._paths, StoreFormat.V5_X, stores.seams(files))
            except ConfigTableError as error:
                assert str(path) in str(error)
                return
            _use_table(table)
            java_json.parse(table.text())

        return one

    def _manifest(self, text: bytes) -> Callable[[], None]:
        path = self._paths.manifest
        return lambda: _discard(manifest.load(stores.overlay({path: self._changed(text)}), path))

    def _format(self, text: bytes) -> Callable[[], None]:
        path = self._paths.format

        def one() -> None:
            try:
                format_file.load(stores.overlay({path: self._changed(text)}), self._paths)
            except (StoreDamaged, StoreUnsupported) as error:
                assert str(path) in str(error)

        return one

    def _state(self, content: bytes) -> Callable[[], None]:
        path, words = self._paths.state, [(at, 8) for at in range(0, 264, 8)]
        return lambda: _discard(
            read_state(stores.overlay({path: self._changed(content, words)}), path)
        )

    def _message_id(self) -> None:
        text = self._changed(b"7F00000100002A9F0000000000280E2F").decode("latin-1")
        try:
            host, offset = message_id.decode(text)
        except MessageIdError:
            return
        assert message_id.encode(host, offset) == text.upper()

    def _cursor(self) -> None:
        text = self._changed(cursors.encode(123_456, "T k").encode()).decode("latin-1")
        try:
            assert cursors.decode(text, "T k") == 123_456
        except CursorError as error:
            assert len(str(error)) < 300


def _discard(found: object) -> None:
    """Any value will do; what it must not be is an unnamed error."""


def _use_table(table: Table) -> None:
    if isinstance(table, TopicTable):
        for topic in table.all():
            assert table.get(topic.name) is not None
    elif isinstance(table, ConsumerOffsets):
        for group, names in table.groups().items():
            for name in names:
                table.of(group, name)
    elif isinstance(table, DelayOffsets):
        table.all()


TOPICS = (
    '{"dataVersion":{"counter":3,"timestamp":1795273269654},"topicConfigTable":{"TxTopic":'
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":'
    '"TxTopic","topicSysFlag":0,"writeQueueNums":4,"attributes":{"a":"b"}}}}'
)
OFFSETS = '{"offsetTable":{"T@G":{0:550,1:3},"%RETRY%G@G":{0:1}},"groupTopicMap":{"G":["T"]}}'
DELAYS = '{"dataVersion":{"counter":1},"offsetTable":{1:20,2:20,3:20}}'
