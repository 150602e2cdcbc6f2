"""Pulls with RocketMQ's statuses and with filters, beside a writer."""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import count_unflagged, count_untagged
from mqstore.storage.codec import properties
from mqstore.storage.codec.ext_unit import ExtUnit, encode
from mqstore.storage.codec.java_text import string_hash
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import FilterError, QueueUnknown
from mqstore.storage.filter.bloom import has
from mqstore.storage.filter.expression import compile_expression
from mqstore.storage.layout import (
    EXT_ADDRESS_MAX,
    EXT_ADDRESS_MIN,
    QUEUE_ENTRY_SIZE,
    StoreFormat,
)
from mqstore.storage.lookup.answers import Pull, PullStatus, Slices
from mqstore.storage.lookup.lookups import ENTRIES_PER_CALL_MAX
from mqstore.storage.lookup.pull_filter import (
    EVALUATED_MAX,
    EVALUATED_MIN,
    PullFilter,
    SqlFilter,
    UnitRun,
    parse_tags,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.queue_entry import ENTRY
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.page_cache import evict, is_in_memory
from tests.unit.storage.stores import CONFIG, open_store

COUNT = 400
RARE_AT = 300
TWINS = ("Aa", "BB")
"""Tags of equal hash."""
TAGS = ("a", "b", *TWINS, "")
INT64 = st.integers(-(2**63), 2**63 - 1)


def _put(store: MessageStore, tag: str, body: bytes = b"") -> None:
    raw = properties.encode({"TAGS": tag}, trailing_separator=False) if tag else b""
    store.append(Message("T", 0, body, raw, store.host, store.host, 1))


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreReader, list[str]]]:
    root = tmp_path_factory.mktemp("tagged")
    chosen = random.Random(1)
    tags = ["rare" if n == RARE_AT else chosen.choice(TAGS) for n in range(COUNT)]
    with open_store(root) as store:
        store.create_topic("T", queues=1)
        for number, tag in enumerate(tags):
            _put(store, tag, b"x" * (number % 50))
    with StoreReader.open(root, production_seams()) as reader:
        yield reader, tags


@given(st.integers(0, COUNT), st.integers(1, 60), st.integers(200, 100_000))
def test_a_pull_from_memory_equals_an_ordinary_pull(
    tagged: tuple[StoreReader, list[str]], start: int, count: int, max_bytes: int
) -> None:
    pulls = tagged[0].pulls
    pulled = pulls.pull("T", 0, start, count=count, max_bytes=max_bytes)
    found = pulls.in_memory(Pull, "T", 0, start, count=count, max_bytes=max_bytes)
    slices = pulls.in_memory(Slices, "T", 0, start, count=count, max_bytes=max_bytes)
    is_whole = len(pulled) == min(count, COUNT - start)
    assert (found is not None) == (slices is not None)
    assert is_whole or found is None
    if found is not None and slices is not None:
        assert found == pulled
        assert b"".join(slices.parts) == b"".join(each.raw for each in pulled.records)
        assert (slices.status, slices.next_offset) == (pulled.status, pulled.next_offset)


@given(st.sampled_from(["a", "BB || rare", "absent", None]), st.integers(0, COUNT + 2))
def test_slices_are_what_a_pull_finds(
    tagged: tuple[StoreReader, list[str]], expression: str | None, start: int
) -> None:
    pulls, wanted = tagged[0].pulls, parse_tags(expression or "")
    request = {"count": 40, "max_bytes": 100_000, "wanted": wanted}
    pulled = pulls.pull("T", 0, start, **request)  # type: ignore[arg-type] # each has its own type
    slices = pulls.slices("T", 0, start, **request)  # type: ignore[arg-type] # each has its own type
    assert b"".join(slices.parts) == b"".join(each.raw for each in pulled.records)
    assert (slices.status, slices.next_offset, len(slices)) == (
        pulled.status,
        pulled.next_offset,
        len(pulled),
    )


def _filled(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("T", queues=1)
        for number in range(COUNT):
            _put(store, "a", b"x" * (number % 50))


def test_a_pull_from_memory_returns_none_when_a_page_is_on_disk(tmp_path: Path) -> None:
    _filled(tmp_path)
    gc.collect()  # no reader maps it any more
    with StoreReader.open(tmp_path, production_seams()) as reader:
        segments = sorted(StorePaths(tmp_path).commit_log.iterdir())
        assert reader.pulls.in_memory(Slices, "T", 0, 5, count=8, max_bytes=10_000) is None, "new"
        reader.lookups.queue_range("T", 0)
        evict(segments[0])
        if is_in_memory(segments[0]):
            pytest.skip("the file system of the tests keeps everything in memory")
        assert reader.pulls.in_memory(Slices, "T", 0, 5, count=8, max_bytes=10_000) is None
        reader.pulls.slices("T", 0, 5, count=8, max_bytes=10_000)
        found = reader.pulls.in_memory(Slices, "T", 0, 5, count=8, max_bytes=10_000)
        assert found is not None
        assert len(found) == 8
        at_end = reader.pulls.in_memory(Slices, "T", 0, COUNT, count=8, max_bytes=10_000)
        assert at_end is not None
        assert at_end.status is PullStatus.OFFSET_OVERFLOW_ONE
        beyond = reader.pulls.in_memory(Slices, "T", 0, COUNT + 1, count=8, max_bytes=10_000)
        assert beyond is None


def test_a_pull_from_memory_returns_none_at_a_damaged_record(tmp_path: Path) -> None:
    _filled(tmp_path)
    segment = sorted(StorePaths(tmp_path).commit_log.iterdir())[0]
    with StoreReader.open(tmp_path, production_seams()) as reader:
        changed = reader.lookups.records("T", 0, 20, 1).records[0]
    with segment.open("r+b") as file:
        file.seek(changed.physical_offset + changed.size - 1)
        file.write(b"!")
    with StoreReader.open(tmp_path, production_seams()) as reader:
        pulled = reader.pulls.pull("T", 0, 16, count=8, max_bytes=10_000)
        assert [each.queue_offset for each in pulled.unreadable] == [20]
        assert reader.pulls.in_memory(Pull, "T", 0, 16, count=8, max_bytes=10_000) is None
        assert reader.pulls.in_memory(Slices, "T", 0, 16, count=8, max_bytes=10_000) is None


class _Unhinting:
    """A filter for which no entry shows whether its record matches."""

    def __init__(self, inner: PullFilter) -> None:
        self._inner = inner
        self.tags = None
        self.evaluated_max = inner.evaluated_max

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        return 0

    def matches(self, found: Record) -> bool:
        return self._inner.matches(found)


@given(
    st.sampled_from(["a", "rare", "Aa", "BB || rare", "a||b", " b || absent ", "absent", "*"]),
    st.integers(0, COUNT),
    st.integers(5, 300),
    st.integers(2_000, 100_000),
    st.booleans(),
)
def test_filtered_pulls_are_all_that_match_and_nothing_else(
    tagged: tuple[StoreReader, list[str]],
    expression: str,
    start: int,
    count: int,
    max_bytes: int,
    hinting: bool,
) -> None:
    reader, tags = tagged
    wanted: PullFilter | None = parse_tags(expression)
    if wanted is not None and not hinting:
        wanted = _Unhinting(wanted)
    names = {each.strip() for each in expression.split("||")}
    expected = [n for n in range(start, COUNT) if expression == "*" or tags[n] in names]
    found: list[int] = []
    at = start
    while at < COUNT:
        answer = reader.pulls.pull("T", 0, at, count=count, max_bytes=max_bytes, wanted=wanted)
        assert (answer.min_offset, answer.max_offset) == (0, COUNT)
        assert len(answer.records) <= count
        assert answer.next_offset > at
        found += [each.queue_offset for each in answer.records]
        at = answer.next_offset
    assert found == expected


def test_filtered_pull_looks_at_ten_thousand_entries_before_it_says_none(tmp_path: Path) -> None:
    large = CONFIG.model_copy(update={"mapped_file_size_commit_log": 8 << 20})
    with (
        open_store(tmp_path, large) as store,
        StoreReader.open(tmp_path, production_seams()) as reader,
    ):
        store.create_topic("T", queues=1)
        for _ in range(ENTRIES_PER_CALL_MAX + 5):
            _put(store, "a")
        _put(store, "b")
        wanted = parse_tags("b")
        first = reader.pulls.pull("T", 0, 0, count=1, max_bytes=1 << 20, wanted=wanted)
        assert (first.status, first.next_offset) == (
            PullStatus.NO_MATCHED_MESSAGE,
            ENTRIES_PER_CALL_MAX,
        )
        second = _pull(reader, first.next_offset, wanted)
        assert (second.status, len(second.records)) == (PullStatus.FOUND, 1)
        third = _pull(reader, second.next_offset, wanted)
        assert third.status is PullStatus.OFFSET_OVERFLOW_ONE


def test_a_long_expression_is_evaluated_over_fewer_messages_before_it_says_none(
    tmp_path: Path,
) -> None:
    text = " OR ".join(["a = 1"] * 400)
    wanted = SqlFilter(compile_expression(text, StoreFormat.V4_9))
    assert EVALUATED_MIN < wanted.evaluated_max < EVALUATED_MAX
    with (
        open_store(tmp_path, CONFIG) as store,
        StoreReader.open(tmp_path, production_seams()) as reader,
    ):
        store.create_topic("T", queues=1)
        for _ in range(wanted.evaluated_max + 5):
            _put(store, "a")
        first = reader.pulls.pull("T", 0, 0, count=1, max_bytes=1 << 20, wanted=wanted)
        assert first.status is PullStatus.NO_MATCHED_MESSAGE
        assert first.next_offset == wanted.evaluated_max
        second = _pull(reader, first.next_offset, wanted)
        assert second.next_offset == first.next_offset + 5


def _pull(reader: StoreReader, offset: int | None, wanted: PullFilter | None = None) -> Pull:
    return reader.pulls.pull("T", 0, offset, count=32, max_bytes=1 << 20, wanted=wanted)


def test_statuses_are_those_of_rocketmq(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, StoreReader.open(tmp_path, production_seams()) as reader:
        store.create_topic("T", queues=1)
        with pytest.raises(QueueUnknown):
            _pull(reader, 0)
        for _ in range(2_000):
            _put(store, "a", b"x" * 200)
        store.expire(3)
        low = reader.lookups.queue_range("T", 0).min_offset
        assert low > 0
        for offset, status, count, following in (
            (None, PullStatus.FOUND, 32, low + 32),
            (low, PullStatus.FOUND, 32, low + 32),
            (low - 1, PullStatus.OFFSET_TOO_SMALL, 0, low),
            (0, PullStatus.OFFSET_TOO_SMALL, 0, low),
            (1_999, PullStatus.FOUND, 1, 2_000),
            (2_000, PullStatus.OFFSET_OVERFLOW_ONE, 0, 2_000),
            (2_001, PullStatus.OFFSET_OVERFLOW_BADLY, 0, 2_000),
        ):
            found = _pull(reader, offset)
            actual = (found.status, len(found.records), found.next_offset)
            assert actual == (status, count, following), offset
            assert (found.min_offset, found.max_offset) == (low, 2_000)


@pytest.mark.parametrize("expression", ["", "  ", "*", " * "])
def test_no_expression_wants_all(expression: str) -> None:
    assert parse_tags(expression) is None


@pytest.mark.parametrize("expression", ["||", " || ", "||".join(map(str, range(101)))])
def test_expression_without_a_tag_or_with_too_many_is_refused(expression: str) -> None:
    with pytest.raises(FilterError):
        parse_tags(expression)


def test_tags_of_equal_hash_are_distinguished(tagged: tuple[StoreReader, list[str]]) -> None:
    reader, tags = tagged
    assert string_hash(TWINS[0]) == string_hash(TWINS[1])
    found = reader.pulls.pull(
        "T", 0, 0, count=1000, max_bytes=1 << 20, wanted=parse_tags(TWINS[0])
    ).records
    assert len(found) == tags.count(TWINS[0])
    assert {each.tags for each in found} == {TWINS[0]}


def test_a_tag_that_java_reads_from_malformed_bytes_is_found_too(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, StoreReader.open(tmp_path, production_seams()) as reader:
        store.create_topic("T", queues=1)
        for raw in (b"TAGS\1\xff", "TAGS\1\ufffd".encode(), b"TAGS\1a"):
            store.append(Message("T", 0, b"", raw, store.host, store.host, 1))
        found = _pull(reader, 0, parse_tags("\ufffd || b")).records
        assert [each.queue_offset for each in found] == [0, 1]


@given(st.lists(INT64, max_size=30), st.lists(INT64, max_size=3), st.data())
def test_entries_are_passed_over_up_to_the_first_that_may_match(
    stored: list[int], codes: list[int], data: st.DataObject
) -> None:
    stored += data.draw(st.lists(st.sampled_from([*codes, 0, EXT_ADDRESS_MAX]), max_size=3))
    entries = memoryview(b"?" * 7 + b"".join(ENTRY.pack(1, 1, code) for code in stored))
    count = data.draw(st.integers(0, 40))
    found = count_untagged(entries, 7, count, array("q", codes))
    looked_at = stored[:count]
    first = [n for n, c in enumerate(looked_at) if c in codes or c <= EXT_ADDRESS_MAX]
    if codes:
        assert found == (first[0] if first else len(looked_at))
    else:
        assert found == len(looked_at)


UNIT = st.builds(
    ExtUnit,
    st.sampled_from([1, 2, 3]),
    st.integers(0, 4),
    st.sampled_from([b"", b"\x00\x00", b"\x01\x80", b"\x01\x81", b"\xff\xff", b"\xff\xff\xff"]),
)


@given(st.lists(st.one_of(UNIT, st.integers(1, 3), st.just(None)), max_size=30), st.integers(0, 99))
def test_units_have_the_tags_code_that_entries_lack(
    said: list[ExtUnit | int | None], base: int
) -> None:
    """None is an address at which no unit stands."""
    units, entries = b"", b""
    for each in said:
        address = EXT_ADDRESS_MIN + base + len(units)
        code = each if isinstance(each, int) else address + 10**6 * (each is None)
        entries += ENTRY.pack(1, 1, code)
        units += encode(each) if isinstance(each, ExtUnit) else b""
    view, run, count = memoryview(entries), UnitRun(memoryview(units), base), len(said)

    tagged = count_untagged(view, 0, count, array("q", [2, 7]), *run)
    wanted = count_unflagged(view, 0, count, array("q", [0, 15]), 16, 2, *run)

    def may_have_tag(each: ExtUnit | int | None) -> bool:
        return each is None or each == 2 or (isinstance(each, ExtUnit) and each.tags_code == 2)

    def may_be_wanted(each: ExtUnit | int | None) -> bool:
        if not isinstance(each, ExtUnit) or each.store_timestamp_ms <= 2 or len(each.bitmap) != 2:
            return True
        return has(each.bitmap, (0, 15))

    assert tagged == next((n for n, each in enumerate(said) if may_have_tag(each)), count)
    assert wanted == next((n for n, each in enumerate(said) if may_be_wanted(each)), count)


def test_a_bitmap_has_no_bits_outside() -> None:
    view = memoryview(b"")
    for positions, bits in (([-1], 16), ([16], 16), ([0], 15)):
        with pytest.raises(ValueError, match="positions"):
            count_unflagged(view, 0, 0, array("q", positions), bits, 0, view, 0)


def test_position_outside_of_the_entries_is_an_error() -> None:
    for position in (-1, QUEUE_ENTRY_SIZE + 1):
        with pytest.raises(ValueError, match=r"."):
            count_untagged(memoryview(bytes(QUEUE_ENTRY_SIZE)), position, 1, array("q", [1]))
