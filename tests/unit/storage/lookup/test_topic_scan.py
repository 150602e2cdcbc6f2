"""A topic's messages by store time, and hidden ones by their real topic, against plain lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import CursorError
from mqstore.storage.layout import HALF_TOPIC
from mqstore.storage.lookup import hidden_messages
from mqstore.storage.lookup.answers import KeyAnswer
from mqstore.storage.lookup.hidden_messages import HiddenKind, is_for
from mqstore.storage.lookup.key_query import KeyQuery
from mqstore.storage.lookup.lookups import TIME_MAX
from mqstore.storage.lookup.topic_scan import TopicQuery
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.stores import CONFIG

BEGIN_MS = 1_700_000_000_000
COUNT = 600
ALL_HIDDEN = hidden_messages.topics_of(list(HiddenKind))


class StepClock:
    """Now and then a few milliseconds go by."""

    def __init__(self) -> None:
        self.now = BEGIN_MS
        self.random = random.Random(1)

    def now_ms(self) -> int:
        self.now += self.random.choice((0, 0, 0, 1, 5))
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


@dataclass
class Written:
    root: Path
    records: list[Record]
    reader: StoreReader

    def expected(self, query: TopicQuery) -> list[int]:
        topics = (query.topic, *query.hidden)
        found = [
            each.physical_offset
            for each in self.records
            if each.topic in topics
            and is_for(each, query.topic)
            and query.from_ms <= each.store_timestamp_ms <= query.to_ms
        ]
        return found[::-1] if query.newest_first else found

    def with_key(self, topics: tuple[str, ...], topic: str, key: str) -> list[int]:
        return [
            each.physical_offset
            for each in reversed(self.records)
            if each.topic in topics and is_for(each, topic) and key in (each.keys or "").split()
        ]


def _put(store: MessageStore, number: int, chosen: random.Random) -> None:
    """To one of two topics; some of them delayed for long, some half messages."""
    topic = chosen.choice(("A", "A", "B"))
    found = {"KEYS": chosen.choice(("k", "other")), "UNIQ_KEY": f"U{number:031d}"}
    to = topic
    kind = chosen.random()
    if kind < 0.2:
        found["DELAY"] = "18"
    elif kind < 0.3:
        found |= {"REAL_TOPIC": topic, "REAL_QID": "0"}
        to = HALF_TOPIC
    encoded = properties.encode(found, trailing_separator=False)
    queue_id = chosen.randrange(3) if to == topic else 0
    store.append(Message(to, queue_id, b"x" * number, encoded, store.host, store.host, 1))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    root = tmp_path_factory.mktemp("scans")
    seams = replace(production_seams(), clock=StepClock())
    chosen = random.Random(2)
    with MessageStore.open(root, CONFIG, seams, StoreOptions()) as store:
        for topic in "AB":
            store.create_topic(topic, queues=3)
        for number in range(COUNT):
            _put(store, number, chosen)
    with StoreReader.open(root, production_seams()) as reader:
        records = []
        position = 0
        while position < reader.log.max_offset:
            try:
                records.append(reader.lookups.by_physical_offset(position))
                position += records[-1].size
            except Exception:
                position = (position // CONFIG.mapped_file_size_commit_log + 1) * (
                    CONFIG.mapped_file_size_commit_log
                )
        assert len(records) == COUNT
        yield Written(root, records, reader)


def _pages(written: Written, query: TopicQuery, limit: int, max_bytes: int) -> list[KeyAnswer]:
    pages: list[KeyAnswer] = []
    cursor = None
    while not pages or cursor is not None:
        pages.append(
            written.reader.scans.scan(query, limit=limit, max_bytes=max_bytes, cursor=cursor)
        )
        cursor = pages[-1].cursor
        assert (cursor is None) == pages[-1].complete
        assert len(pages[-1].records) <= limit
    return pages


times = st.integers(BEGIN_MS - 5, BEGIN_MS + 1_500)


@given(
    times,
    st.one_of(times, st.just(TIME_MAX)),
    st.integers(1, 700),
    st.integers(1, 200_000),
    st.booleans(),
    st.sampled_from([(), ALL_HIDDEN, (HALF_TOPIC,)]),
)
def test_pages_of_a_scan_are_all_of_the_range_each_once_and_in_order(
    written: Written,
    from_ms: int,
    to_ms: int,
    limit: int,
    max_bytes: int,
    newest_first: bool,
    hidden: tuple[str, ...],
) -> None:
    query = TopicQuery("A", from_ms, to_ms, newest_first, hidden)
    pages = _pages(written, query, limit, max_bytes)
    found = [each.physical_offset for page in pages for each in page.records]
    assert found == written.expected(query)


def test_scan_reads_little_beyond_what_it_answers(written: Written) -> None:
    middle = written.records[COUNT // 2].store_timestamp_ms
    for newest_first in (True, False):
        query = TopicQuery("A", middle, middle + 20, newest_first)
        answer = written.reader.scans.scan(query, limit=1000, max_bytes=1 << 20)
        assert answer.scanned.candidates <= len(answer.records) + 3


def test_scan_goes_on_from_an_offset_with_what_came_since(written: Written) -> None:
    seen = written.records[COUNT // 2].physical_offset
    query = TopicQuery("A", newest_first=False)
    answer = written.reader.scans.scan_from(query, seen, limit=1000, max_bytes=1 << 30)
    found = [each.physical_offset for each in answer.records]
    assert found == [offset for offset in written.expected(query) if offset >= seen]


def test_cursor_of_another_scan_is_refused(written: Written) -> None:
    query = TopicQuery("A")
    cursor = written.reader.scans.scan(query, limit=1, max_bytes=1 << 20).cursor
    assert cursor is not None
    changed: list[dict[str, Any]] = [
        {"topic": "B"},
        {"from_ms": 1},
        {"newest_first": False},
        {"hidden": ALL_HIDDEN},
    ]
    for change in changed:
        with pytest.raises(CursorError):
            written.reader.scans.scan(
                replace(query, **change), limit=1, max_bytes=1 << 20, cursor=cursor
            )


@given(
    st.sampled_from(["A", HALF_TOPIC]),
    st.integers(1, 30),
    st.sampled_from([(), ALL_HIDDEN, (HALF_TOPIC,)]),
)
def test_key_finds_hidden_messages_too_newest_first_over_all_pages(
    written: Written, topic: str, limit: int, hidden: tuple[str, ...]
) -> None:
    query = KeyQuery(topic, "k", 0, TIME_MAX)
    found: list[int] = []
    cursor, complete = None, False
    while not complete:
        answer = hidden_messages.by_key(
            written.reader.lookups, query, hidden, limit=limit, cursor=cursor
        )
        assert len(answer.records) <= limit
        found += [each.physical_offset for each in answer.records]
        cursor, complete = answer.cursor, answer.complete
        assert (cursor is None) == complete
    assert found == written.with_key((topic, *hidden), topic, "k")


def test_damaged_message_in_the_range_is_named(written: Written, tmp_path: Path) -> None:
    hurt = next(each for each in written.records if each.topic == "B" and each.body)
    segment = StorePaths(written.root).commit_log / segment_name(0)
    with segment.open("r+b") as file:
        file.seek(hurt.physical_offset + hurt.size - len(hurt.raw_properties) - 5)
        saved = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([saved[0] ^ 1]))
        file.flush()
        try:
            with StoreReader.open(written.root, production_seams()) as reader:
                answer = reader.scans.scan(TopicQuery("B"), limit=1000, max_bytes=1 << 30)
        finally:
            file.seek(-1, 1)
            file.write(saved)
    assert [each.physical_offset for each in answer.unreadable] == [hurt.physical_offset]
    expected = written.expected(TopicQuery("B"))
    found = [each.physical_offset for each in answer.records]
    assert found == [offset for offset in expected if offset != hurt.physical_offset]
