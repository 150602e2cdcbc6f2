"""Every read path, over a log of real records and small in-memory views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import LogWindow, Word
from mqstore.storage.codec import properties, record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import (
    CursorError,
    KeyUnknown,
    MessageIdError,
    OffsetInsideRecord,
    OffsetOutOfRange,
    QueueUnknown,
    RecordBodyCorrupt,
    RecordExpired,
    RecordMagicUnknown,
    StoreNotOpen,
    TopicUnknown,
)
from mqstore.storage.layout import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE, StoreFormat
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.lookup.lookups import Lookups
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
        page = memoryview(bytearray(48))
        self._words = (
            Word(page, 0),
            Word(page, 8),
            Word(page, 16),
            Word(page, 24),
            Word(page, 32),
            Word(page, 40),
        )
        self.index_complete = True

    @property
    def bound_words(self) -> tuple[Word, Word, Word, Word, Word, Word]:
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


@pytest.fixture
def store() -> Store:
    return Store()


def offsets(records: list[Record]) -> list[int]:
    return [found.physical_offset for found in records]


# one record -------------------------------------------------------------------------------


def test_a_record_is_found_by_its_physical_offset(store: Store) -> None:
    store.put()
    offset = store.put(body=b"second")

    assert store.lookups.by_physical_offset(offset).body == b"second"


def test_an_answer_outlives_the_log(store: Store) -> None:
    found = store.lookups.by_physical_offset(store.put())
    store.log.data[:] = bytes(LOG_SIZE)

    assert found.body == b"body"


@pytest.mark.parametrize("distance", [-1, 0, 1, 8, 1 << 40])
def test_offsets_outside_the_log_are_out_of_range(store: Store, distance: int) -> None:
    store.put()
    outside = -1 if distance < 0 else store.log.max_offset + distance

    with pytest.raises(OffsetOutOfRange):
        store.lookups.by_physical_offset(outside)


def test_an_offset_inside_a_record_is_refused(store: Store) -> None:
    store.put(body=bytes(200))

    for inside in range(1, store.log.max_offset):
        with pytest.raises(Exception, match="offset"):
            store.lookups.by_physical_offset(inside)


def test_a_blank_record_is_no_record(store: Store) -> None:
    store.put()
    offset = store.log.max_offset
    store.put_blank(64)

    with pytest.raises(OffsetOutOfRange, match="end of a segment"):
        store.lookups.by_physical_offset(offset)


def test_a_record_below_the_minimum_has_expired(store: Store) -> None:
    store.put()
    store.log.min_offset = store.put()

    with pytest.raises(RecordExpired):
        store.lookups.by_physical_offset(0)


def test_a_damaged_body_is_named(store: Store) -> None:
    store.damage_body(store.put())

    with pytest.raises(RecordBodyCorrupt):
        store.lookups.by_physical_offset(0)


@pytest.mark.parametrize("host", [HOST, HOST_V6])
def test_a_record_is_found_by_its_offset_message_id(store: Store, host: Host) -> None:
    store.put()
    found = store.lookups.by_physical_offset(store.put(body=b"wanted", host=host))

    for text in (found.offset_message_id, found.offset_message_id.lower()):
        assert store.lookups.by_message_id(text).body == b"wanted"


def test_an_id_of_another_host_is_refused(store: Store) -> None:
    found = store.lookups.by_physical_offset(store.put())
    other = found.offset_message_id.replace("0A010203", "0A010204")

    with pytest.raises(OffsetOutOfRange, match="host"):
        store.lookups.by_message_id(other)


@pytest.mark.parametrize("text", ["", "zz", "0" * 31, "x" * 32, "0" * 55])
def test_what_is_no_message_id_is_refused(store: Store, text: str) -> None:
    with pytest.raises(MessageIdError):
        store.lookups.by_message_id(text)


# by key -----------------------------------------------------------------------------------


def test_a_unique_key_finds_its_newest_record(store: Store) -> None:
    store.put(uniq_key="U1", body=b"old")
    store.put(uniq_key="U1", body=b"new")
    store.put(uniq_key="U2", keys="U1")
    store.put("Other", uniq_key="U1")

    assert store.lookups.by_unique_key("T", "U1").body == b"new"


@pytest.mark.parametrize("inside", [1, 60, 100])
def test_an_offset_inside_a_record_says_whose(store: Store, inside: int) -> None:
    store.put()
    holder = store.put(body=bytes(range(200)))
    store.put()

    with pytest.raises(OffsetInsideRecord) as error:
        store.lookups.by_physical_offset(holder + inside)
    assert error.value.holder == holder


def test_a_damaged_record_is_not_taken_for_the_inside_of_another(store: Store) -> None:
    store.put()
    damaged = store.put()
    store.put()
    store.log.data[damaged + 4] ^= 1

    with pytest.raises(RecordMagicUnknown):
        store.lookups.by_physical_offset(damaged)


@pytest.mark.parametrize("complete", [True, False])
def test_an_unknown_unique_key_says_whether_all_was_seen(store: Store, complete: bool) -> None:
    store.put(uniq_key="U1")
    store.bounds.index_complete = complete

    with pytest.raises(KeyUnknown) as unknown:
        store.lookups.by_unique_key("T", "U2")
    assert unknown.value.complete is complete


def test_a_key_finds_records_newest_first_without_collisions(store: Store) -> None:
    first = store.put(keys="a b")
    store.put(keys="ab")
    store.put("Other", keys="b")
    last = store.put(uniq_key="b")

    answer = store.lookups.by_key("T", "b")

    assert offsets(answer.records) == [last, first]
    assert answer.complete
    assert answer.cursor is None
    assert answer.scanned.candidates == 4


def test_a_candidate_of_broken_structure_is_listed(store: Store) -> None:
    broken = store.put(keys="k")
    whole = store.put(keys="k")
    store.log.data[broken + 4] ^= 1

    answer = store.lookups.by_key("T", "k")

    assert offsets(answer.records) == [whole]
    assert [each.physical_offset for each in answer.unreadable] == [broken]


def test_a_time_range_includes_both_ends(store: Store) -> None:
    wanted = [store.put(keys="k", stored_ms=ms) for ms in (1000, 1001, 1002, 1003)]

    answer = store.lookups.by_key("T", "k", from_ms=1001, to_ms=1002)

    assert offsets(answer.records) == [wanted[2], wanted[1]]


def test_cursors_walk_through_everything_once(store: Store) -> None:
    wanted = [store.put(keys="k") for _ in range(700)]
    seen: list[int] = []
    cursor = None
    while True:
        answer = store.lookups.by_key("T", "k", limit=64, cursor=cursor)
        seen += offsets(answer.records)
        assert answer.complete is (answer.cursor is None)
        if answer.cursor is None:
            break
        cursor = answer.cursor
        store.put(keys="k")  # what is newer than the first answer is not part of the walk

    assert seen == wanted[::-1]


def test_a_page_that_ends_exactly_at_the_last_record_has_no_cursor(store: Store) -> None:
    for _ in range(3):
        store.put(keys="k")

    assert store.lookups.by_key("T", "k", limit=3).cursor is None


def test_an_entry_that_is_there_twice_is_answered_once(store: Store) -> None:
    offset = store.put(keys="k k")
    store.index.offsets.append(offset)

    assert offsets(store.lookups.by_key("T", "k").records) == [offset]


def test_index_entries_beyond_a_cut_are_left_out(store: Store) -> None:
    offset = store.put(keys="k")
    store.index.offsets += [5_000, 6_000]

    answer = store.lookups.by_key("T", "k")

    assert offsets(answer.records) == [offset]
    assert answer.complete


def test_expired_records_are_left_out(store: Store) -> None:
    store.put(keys="k")
    kept = store.put(keys="k")
    store.log.min_offset = kept

    assert offsets(store.lookups.by_key("T", "k").records) == [kept]


def test_what_is_not_dispatched_yet_is_found_in_the_tail(store: Store) -> None:
    first = store.put(keys="k")
    store.put_blank(32)
    second = store.put(keys="k", dispatch=False)
    third = store.put(keys="k", dispatch=False)

    answer = store.lookups.by_key("T", "k")

    assert offsets(answer.records) == [third, second, first]
    assert answer.complete
    assert answer.scanned.max_offset == store.log.max_offset


def test_a_tail_that_is_too_long_makes_the_answer_incomplete(store: Store) -> None:
    first = store.put(keys="k")
    end = store.log.max_offset
    store.put(keys="k", body=bytes(2 << 20), dispatch=False)

    answer = store.lookups.by_key("T", "k")

    assert offsets(answer.records) == [first]
    assert not answer.complete
    assert answer.scanned.max_offset == end


def test_a_rebuild_of_the_index_makes_the_answer_incomplete(store: Store) -> None:
    store.put(keys="k")
    store.bounds.index_complete = False

    answer = store.lookups.by_key("T", "k")

    assert len(answer.records) == 1
    assert not answer.complete


def test_a_damaged_body_under_a_key_is_named_beside_the_records(store: Store) -> None:
    bad = store.put(keys="k")
    good = store.put(keys="k", body=b"good")
    store.damage_body(bad)

    answer = store.lookups.by_key("T", "k")

    assert offsets(answer.records) == [good]
    assert [each.physical_offset for each in answer.unreadable] == [bad]
    assert isinstance(answer.unreadable[0].error, RecordBodyCorrupt)


@given(text=st.text(max_size=40))
def test_foreign_cursors_are_refused(text: str) -> None:
    store = Store()
    store.put(keys="k")
    with pytest.raises(CursorError):
        store.lookups.by_key("T", "k", cursor=text)


def test_a_cursor_is_good_for_its_own_query_only(store: Store) -> None:
    for _ in range(3):
        store.put(keys="k other")
    cursor = store.lookups.by_key("T", "k", limit=1).cursor
    assert cursor is not None
    assert len(store.lookups.by_key("T", "k", limit=5, cursor=cursor).records) == 2
    others: list[dict[str, Any]] = [
        {"topic": "T", "key": "other"},
        {"topic": "U", "key": "k"},
        {"topic": "T", "key": "k", "from_ms": 1},
        {"topic": "T", "key": "k", "to_ms": 1},
    ]
    for query in others:
        with pytest.raises(CursorError, match="repeat the query without it"):
            store.lookups.by_key(**query, cursor=cursor)


# by queue ---------------------------------------------------------------------------------


def test_topics_and_queues_are_listed_with_their_bounds(store: Store) -> None:
    store.put("B", 1)
    store.put("B", 0)
    store.put("B", 0)
    store.put("A", 3)

    assert store.lookups.topics() == ["A", "B"]
    found = store.lookups.queues("B")
    assert [(each.queue_id, each.min_offset, each.max_offset) for each in found] == [
        (0, 0, 2),
        (1, 0, 1),
    ]
    assert store.lookups.queue_range("A", 3).max_offset == 1


def test_unknown_topics_and_queues_are_named(store: Store) -> None:
    store.put("A", 0)

    with pytest.raises(TopicUnknown):
        store.lookups.queues("B")
    for call in (
        lambda: store.lookups.queue_range("A", 1),
        lambda: store.lookups.records("B", 0, 0),
        lambda: store.lookups.offset_by_time("A", -1, 0),
    ):
        with pytest.raises(QueueUnknown):
            call()


def test_a_queue_is_read_in_order_and_says_where_to_go_on(store: Store) -> None:
    wanted = [store.put() for _ in range(5)]

    pull = store.lookups.records("T", 0, 1, count=3)

    assert pull.status is PullStatus.FOUND
    assert offsets(pull.records) == wanted[1:4]
    assert (pull.next_offset, pull.min_offset, pull.max_offset) == (4, 0, 5)


def test_bytes_are_bounded_but_one_record_always_comes(store: Store) -> None:
    for _ in range(3):
        store.put(body=bytes(1000))

    assert len(store.lookups.records("T", 0, 0, max_bytes=1).records) == 1
    assert len(store.lookups.records("T", 0, 0, max_bytes=2500).records) == 2


@pytest.mark.parametrize(
    ("offset", "status"),
    [(2, PullStatus.OFFSET_OVERFLOW_ONE), (3, PullStatus.OFFSET_OVERFLOW_BADLY)],
)
def test_beyond_the_end_nothing_is_found(store: Store, offset: int, status: PullStatus) -> None:
    store.put()
    store.put()

    pull = store.lookups.records("T", 0, offset)

    assert (pull.status, pull.records, pull.next_offset) == (status, [], 2)


def test_a_negative_queue_offset_is_refused(store: Store) -> None:
    store.put()

    with pytest.raises(OffsetOutOfRange, match="negative"):
        store.lookups.records("T", 0, -1)


def test_holes_and_expired_entries_are_skipped(store: Store) -> None:
    store.put()
    kept = store.put()
    last = store.put()
    queue = store.queues["T", 0]
    queue.stored.insert(2, HOLE)
    queue.stored.insert(2, QueueEntry(0, 0, 0))
    store.log.min_offset = kept

    pull = store.lookups.records("T", 0, 0)

    assert offsets(pull.records) == [kept, last]
    assert pull.unreadable == []
    assert pull.next_offset == 5


def test_reading_below_the_minimum_begins_at_the_minimum(store: Store) -> None:
    wanted = [store.put() for _ in range(4)]
    store.queues["T", 0].min_index = 2

    pull = store.lookups.records("T", 0, 0)

    assert offsets(pull.records) == wanted[2:]
    assert pull.min_offset == 2


def test_a_filler_is_passed_as_the_hole_it_fills(store: Store) -> None:
    first = store.put()
    second = store.put()
    entries = store.queues["T", 0].stored
    entries[1:1] = [entries[0]] * 3

    assert offsets(store.lookups.records("T", 0, 0).records)[:1] == [first]
    pull = store.lookups.records("T", 0, 2, count=1)
    assert [each.queue_offset for each in pull.unreadable] == []
    assert pull.next_offset == 5
    assert second in offsets(pull.records)


def test_unreadable_records_are_named_and_passed(store: Store) -> None:
    store.put()
    bad = store.put()
    store.put()
    store.damage_body(bad)

    pull = store.lookups.records("T", 0, 0)

    assert len(pull.records) == 2
    assert [(each.queue_offset, each.physical_offset) for each in pull.unreadable] == [(1, bad)]
    assert pull.next_offset == 3


@pytest.mark.parametrize("entry", [QueueEntry(1 << 40, 100, 0), QueueEntry(0, 50, 0)])
def test_an_entry_that_lies_is_unreadable(store: Store, entry: QueueEntry) -> None:
    store.put()
    store.queues["T", 0].stored.append(entry)

    pull = store.lookups.records("T", 0, 1)

    assert pull.records == []
    assert isinstance(pull.unreadable[0].error, OffsetOutOfRange)
    assert pull.next_offset == 2


def test_entries_above_the_dispatched_offset_are_not_believed(store: Store) -> None:
    store.put()
    second = store.put()
    store.bounds.dispatched_offset = second

    pull = store.lookups.records("T", 0, 0)
    after = store.lookups.records("T", 0, 1)

    assert (len(pull.records), pull.next_offset) == (1, 1)
    assert (after.status, after.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, 1)


@given(total=st.integers(0, 20), dispatched=st.integers(0, 20), hole=st.integers(0, 20))
def test_a_queue_ends_where_dispatch_has_got_to(total: int, dispatched: int, hole: int) -> None:
    store = Store()
    begins = [store.put() for _ in range(total)]
    store.bounds.dispatched_offset = [*begins, store.log.max_offset][min(dispatched, total)]
    if hole < min(dispatched, total):
        store.queues["T", 0].stored[hole] = HOLE
    if not total:
        return
    end = min(dispatched, total)
    assert store.lookups.queue_range("T", 0).max_offset == end
    at_end = store.lookups.records("T", 0, end)
    assert (at_end.status, at_end.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, end)
    assert at_end.max_offset == end  # who waits there is not answered yet


@given(
    times=st.lists(st.integers(0, 50), max_size=30),
    wanted=st.integers(-1, 51),
    holes=st.sets(st.integers(0, 29)),
)
def test_offset_by_time_is_the_first_at_or_after(
    times: list[int], wanted: int, holes: set[int]
) -> None:
    store = Store()
    store.put(stored_ms=0)
    for stored_ms in sorted(times):
        store.put(stored_ms=stored_ms)
    queue = store.queues["T", 0]
    for hole in holes:
        if hole < len(queue.stored):
            queue.stored[hole] = HOLE

    readable = [
        index
        for index, entry in enumerate(queue.stored)
        if entry is not HOLE
        and store.lookups.by_physical_offset(entry.physical_offset).store_timestamp_ms >= wanted
    ]
    expected = readable[0] if readable else queue.max_index
    assert store.lookups.offset_by_time("T", 0, wanted) == expected


# recovery meanwhile -----------------------------------------------------------------------


def test_a_look_up_that_recovery_disturbed_is_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = store.put()
    view_from, calls = store.log.view_from, 0

    def disturbed(start: int) -> tuple[memoryview, int, int] | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            store.bounds.epoch += 1
            return None
        return view_from(start)

    monkeypatch.setattr(store.log, "view_from", disturbed)

    assert store.lookups.by_physical_offset(offset).body == b"body"


def test_a_look_up_that_is_disturbed_all_along_gives_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put()

    def disturbed(start: int) -> tuple[memoryview, int, int] | None:
        store.bounds.epoch += 1
        return None

    monkeypatch.setattr(store.log, "view_from", disturbed)

    with pytest.raises(StoreNotOpen) as refused:
        store.lookups.by_physical_offset(0)
    assert refused.value.state == "recovering"


def test_an_entry_that_names_a_record_in_its_own_place_is_damaged(store: Store) -> None:
    store.put()
    store.put()
    store.put(queue_id=1)
    queue = store.queues["T", 0]
    queue.stored[0] = queue.stored[1]

    pull = store.lookups.records("T", 0, 0)

    assert [found.queue_offset for found in pull.records] == [1]
    assert [each.queue_offset for each in pull.unreadable] == [0]
    assert "names the record at queue offset 1" in str(pull.unreadable[0].error)


def test_a_record_that_is_in_no_other_place_is_served_wherever_an_entry_names_it(
    store: Store,
) -> None:
    store.put()
    entry = store.queues["T", 0].stored[0]
    store.queues["T", 0].stored = [HOLE, HOLE, entry]

    assert len(store.lookups.records("T", 0, 2).records) == 1


def test_what_an_unreadable_entry_says_of_its_size_takes_no_room_in_an_answer(
    store: Store,
) -> None:
    store.put()
    store.put()
    store.queues["T", 0].stored[0] = QueueEntry(0, 2**31 - 2, 0)

    pull = store.lookups.records("T", 0, 0, max_bytes=1_000)

    assert (len(pull.records), len(pull.unreadable), pull.next_offset) == (1, 1, 2)


# raw ------------------------------------------------------------------------------------------


def test_records_have_the_logs_own_bytes(store: Store) -> None:
    offsets = [store.put(body=b"x" * size) for size in (3, 0, 7, 1, 2)]

    pull = store.lookups.records("T", 0, 0)

    ends = [*offsets[1:], store.log.max_offset]
    assert [each.raw for each in pull.records] == [
        bytes(store.log.data[start:end]) for start, end in zip(offsets, ends, strict=True)
    ]
    assert (pull.status, pull.next_offset) == (PullStatus.FOUND, 5)


def test_records_keep_to_count_and_bytes(store: Store) -> None:
    ends = []
    for _ in range(6):
        store.put()
        ends.append(store.log.max_offset)

    assert len(store.lookups.records("T", 0, 1, 2).records) == 2
    assert len(store.lookups.records("T", 0, 0, max_bytes=ends[2]).records) == 3
    assert len(store.lookups.records("T", 0, 0, max_bytes=ends[4]).records) == 5
    assert len(store.lookups.records("T", 0, 0, max_bytes=1).records) == 1


def test_records_of_two_segments_are_one_answer(store: Store) -> None:
    store.log.cuts = [store.put() for _ in range(6)][2:4]

    assert len(store.lookups.records("T", 0, 0).records) == 6
