"""Messages whose queue entries get units with a bitmap, from the subscription to the pull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.filter.expression import compile_expression
from mqstore.storage.layout import EXT_ADDRESS_MIN, StoreFormat
from mqstore.storage.lookup.pull_filter import (
    PullFilter,
    SqlFilter,
    SubscriptionBits,
    UnitRun,
    parse_tags,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.consumer_filters import FilterData
from mqstore.storage.verify import Kind, Verification
from tests.unit.storage.stores import CONFIG, abandon, open_store

WITHOUT_UNITS = CONFIG.model_copy(update={"enable_consume_queue_ext": False})
WITH_UNITS = CONFIG.model_copy(
    update={
        "enable_consume_queue_ext": True,
        "enable_calc_filter_bit_map": True,
        "mapped_file_size_consume_queue_ext": 1024,
    }
)
EXPRESSION = "a > 5"
WANTED = [n for n in range(100) if n % 10 > 5]


class Counting:
    """Counts the messages that it is shown."""

    def __init__(self, inner: PullFilter) -> None:
        self.looked = 0
        self.tags = None
        self.evaluated_max = inner.evaluated_max
        self._inner = inner

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        return self._inner.count_unwanted(entries, position, count, units)

    def matches(self, found: Record) -> bool:
        self.looked += 1
        return self._inner.matches(found)


def put(store: MessageStore, numbers: range, topic: str = "T", body: bytes = b"") -> None:
    for n in numbers:
        given = {"TAGS": f"t{n % 3}", "a": str(n % 10)}
        raw = properties.encode(given, trailing_separator=store.format.trailing_property_separator)
        store.append(Message(topic, 0, body, raw, store.host, store.host, 1))


def queue_of(store: MessageStore, topic: str = "T") -> ConsumeQueue:
    queue = store.queues.get(topic, 0)
    assert queue is not None
    return queue


def units_of(store: MessageStore, topic: str = "T") -> list[ExtUnit | None]:
    """Units of each entry; None if its tagsCode is no address."""
    queue = queue_of(store, topic)
    found = []
    for _, entry in queue.entries(0, queue.max_index):
        unit = queue.ext.unit(entry.tags_code) if queue.ext and entry.is_ext_address else None
        assert unit is not None or not entry.is_ext_address
        found.append(unit)
    return found


def sql_filter(subscribed: FilterData | None, expression: str = EXPRESSION) -> Counting:
    known = None
    if subscribed is not None:
        known = SubscriptionBits(subscribed.bits, subscribed.positions, subscribed.born_ms)
    return Counting(SqlFilter(compile_expression(expression, StoreFormat.V4_9), known))


def pulled(root: Path, wanted: PullFilter, topic: str = "T") -> list[int]:
    """Queue offsets of all that a filter finds in a queue."""
    found: list[int] = []
    with StoreReader.open(root, production_seams()) as reader:
        at, high = 0, reader.lookups.queue_range(topic, 0).max_offset
        while at < high:
            answer = reader.pulls.pull(topic, 0, at, count=7, max_bytes=1 << 20, wanted=wanted)
            found += [each.queue_offset for each in answer.records]
            assert not answer.unreadable
            at = answer.next_offset
    return found


@pytest.fixture
def subscribed(root: Path) -> FilterData:
    """A closed store with 50 messages before a subscription and 100 after it."""
    with open_store(root, WITH_UNITS) as store:
        for topic in ("T", "U"):
            store.create_topic(topic, queues=1)
        put(store, range(50))
        made = store.subscriptions.put("g", "T", EXPRESSION)
        step_clock(made)
        put(store, range(100))
        put(store, range(10), "U")
    return made


def step_clock(made: FilterData) -> None:
    """Advance the clock, so that later puts have a later millisecond."""
    clock = production_seams().clock
    while clock.now_ms() <= made.born_ms:
        pass


def test_entries_get_units_from_the_subscription_on(root: Path, subscribed: FilterData) -> None:
    with open_store(root, WITH_UNITS) as store:
        before, after = units_of(store)[:50], units_of(store)[50:]
        assert before == [None] * 50
        assert [unit.tags_code for unit in after if unit is not None] == [
            properties.tags_code(f"t{n % 3}") for n in range(100)
        ]
        assert units_of(store, "U") == [None] * 10


def test_a_filtered_pull_looks_only_at_what_its_group_may_want(
    root: Path, subscribed: FilterData
) -> None:
    expected = [n for n in range(50) if n % 10 > 5] + [50 + n for n in WANTED]
    plain, by_bits = sql_filter(None), sql_filter(subscribed)
    assert pulled(root, plain) == expected == pulled(root, by_bits)
    assert plain.looked == 150
    assert by_bits.looked <= 50 + 2 * len(WANTED)  # some are read along with those before them


def test_the_bits_are_of_the_oldest_subscription_with_the_expression(
    subscribed: FilterData,
) -> None:
    younger = replace(subscribed, group="h", born_ms=subscribed.born_ms + 1, positions=(1, 2, 3))
    other = replace(subscribed, group="i", expression="a > 6", born_ms=1)
    without = replace(subscribed, group="j", born_ms=2, positions=())
    plain = SqlFilter(compile_expression(EXPRESSION, StoreFormat.V4_9))
    assert plain.with_subscription_bits([other, without]) is plain
    found = plain.with_subscription_bits([younger, subscribed, other, without])
    assert found.known == SubscriptionBits(
        subscribed.bits, subscribed.positions, subscribed.born_ms
    )


def test_a_group_that_came_later_finds_what_was_stored_before(
    root: Path, subscribed: FilterData
) -> None:
    with open_store(root, WITH_UNITS) as store:
        late = store.subscriptions.put("late", "T", "a = 3")
        step_clock(late)
        put(store, range(10))
    found = pulled(root, sql_filter(late, "a = 3"))
    assert found == [n for n in range(160) if n % 10 == 3]


def test_tags_are_found_by_the_units(root: Path, subscribed: FilterData) -> None:
    wanted = parse_tags("t1")
    assert wanted is not None
    counting = Counting(wanted)
    expected = [n for n in range(50) if n % 3 == 1] + [50 + n for n in range(100) if n % 3 == 1]
    assert pulled(root, counting) == expected
    assert counting.looked == len(expected)


def test_without_its_unit_a_message_is_looked_at(root: Path, subscribed: FilterData) -> None:
    for file in (root / "consumequeue_ext/T/0").iterdir():
        file.unlink()
    by_bits, tags = sql_filter(subscribed), parse_tags("t2")
    assert tags is not None
    assert pulled(root, by_bits) == pulled(root, sql_filter(None))
    assert by_bits.looked == 150
    assert len(pulled(root, tags)) == 49


def test_a_topic_without_subscriptions_is_left_to_the_kernel(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", WITH_UNITS) as store:
        for topic in ("T", "U"):
            store.create_topic(topic, queues=1)
            put(store, range(1), topic)
        store.subscriptions.put("g", "T", EXPRESSION)
        put(store, range(1, 9))
        assert set(store.queues.windows_by_place) == {("U", 0)}
        assert store.dispatcher.end.is_idle
        assert not (store.paths.consume_queue_ext / "U").exists()

        store.delete_topic("T")
        assert set(store.queues.windows_by_place) == {("U", 0)}


@pytest.mark.parametrize("units", [True, False])
def test_with_the_setting_off_entries_are_plain_again(
    root: Path, subscribed: FilterData, units: bool
) -> None:
    with open_store(root, WITH_UNITS if units else WITHOUT_UNITS) as store:
        put(store, range(5))
        assert [unit is not None for unit in units_of(store)] == (
            [False] * 50 + [True] * 100 + [units] * 5
        )
        assert (("T", 0) in store.queues.windows_by_place) is not units


def test_after_a_kill_entries_have_their_units(root: Path, subscribed: FilterData) -> None:
    store = open_store(root, WITH_UNITS)
    put(store, range(100, 200))
    expected = units_of(store)
    abandon(store)
    with open_store(root, WITH_UNITS) as again:
        assert units_of(again) == expected


def lose_the_first_file(store: ConsumeQueue) -> None:
    assert store.ext is not None
    view = store.ext.files.files[0].view
    view[:] = bytes(len(view))


def lose_the_last_bytes(store: ConsumeQueue) -> None:
    assert store.ext is not None
    last = store.ext.files.files[-1]
    last.view[last.wrote_position - 300 :] = bytes(last.size - last.wrote_position + 300)


def take_others(store: ConsumeQueue) -> None:
    """Some addresses are those of other messages, as after a broker's crash."""
    for index in range(60, 70):
        entry = store.entry(index)
        assert entry is not None
        store._overwrite(index, entry._replace(tags_code=EXT_ADDRESS_MIN + 34 * (index - 55)))


@pytest.mark.parametrize("hurt", [lose_the_first_file, lose_the_last_bytes, take_others])
@pytest.mark.parametrize("after", [WITH_UNITS, CONFIG])
def test_units_of_an_unknown_writer_are_made_again(
    root: Path, subscribed: FilterData, hurt: Callable[[ConsumeQueue], None], after: object
) -> None:
    store = open_store(root, WITH_UNITS)
    put(store, range(100, 150))
    expected = units_of(store)
    hurt(queue_of(store))
    abandon(store)
    (root / "mqstore" / "running.json").unlink(missing_ok=True)
    (root / "mqstore" / "format.json").unlink()
    with open_store(root, WITH_UNITS if after is WITH_UNITS else CONFIG) as again:
        found = units_of(again)
        if after is WITH_UNITS:
            assert found == expected
        assert all(new in (None, old) for new, old in zip(found, expected, strict=True))
    wanted = sql_filter(subscribed)
    assert pulled(root, wanted) == pulled(root, sql_filter(None))


def test_units_go_with_the_entries_that_name_them(root: Path) -> None:
    with open_store(root, WITH_UNITS) as store:
        store.create_topic("T", queues=1)
        store.subscriptions.put("g", "T", EXPRESSION)
        put(store, range(1_000), body=b"x" * 300)
        ext = queue_of(store).ext
        assert ext is not None
        before = len(ext.files.files)
        store.expire(3)
        assert 1 < len(ext.files.files) < before
        first = queue_of(store).entry(queue_of(store).min_index)
        assert first is not None
        assert ext.unit(first.tags_code) is not None
        assert ext.files.files[0].base_offset <= first.tags_code - EXT_ADDRESS_MIN

        store.delete_topic("T")
        assert not list(store.paths.consume_queue_ext.iterdir())


def test_a_subscriptions_birth_is_not_before_what_is_stored(root: Path) -> None:
    """Dispatched before it, a message has no bit of it."""
    with open_store(root, WITH_UNITS) as store:
        store.create_topic("T", queues=1)
        put(store, range(1))
        newest_ms = store.log.end.last_store_timestamp_ms + 5_000
        store.log.end.last_store_timestamp_ms = newest_ms
        assert store.subscriptions.put("g", "T", EXPRESSION).born_ms == newest_ms


def test_a_record_is_shown_with_its_unit(root: Path, subscribed: FilterData) -> None:
    with StoreReader.open(root, production_seams()) as reader:
        for number, has_unit in ((0, False), (60, True)):
            found = reader.lookups.records("T", 0, number, 1, 1 << 20).records[0]
            place = reader.places.of(found)
            assert place is not None
            assert (place.unit is not None) is has_unit
            if place.unit is not None:
                expected = found.tags_code, found.store_timestamp_ms
                assert place.unit[:2] == expected
                assert len(place.unit.bitmap) * 8 == subscribed.bits


def test_verify_compares_units_with_their_records(root: Path, subscribed: FilterData) -> None:
    assert list(kinds(root)) == []
    with open_store(root, WITH_UNITS) as store:
        queue = queue_of(store)
        for index, address in ((60, EXT_ADDRESS_MIN + 34 * 20), (61, EXT_ADDRESS_MIN + 1)):
            entry = queue.entry(index)
            assert entry is not None
            queue._overwrite(index, entry._replace(tags_code=address))
    assert sorted(kinds(root)) == [Kind.ENTRY_UNIT, Kind.UNIT_MISSING]


def test_a_file_of_units_that_was_cut_short_is_set_aside(
    root: Path, subscribed: FilterData
) -> None:
    *_, last = sorted((root / "consumequeue_ext/T/0").iterdir())
    last.write_bytes(last.read_bytes()[:100])
    assert Kind.QUEUE_FILE in kinds(root)
    with open_store(root, WITH_UNITS) as store:
        put(store, range(100))
        assert queue_of(store).max_index == 250
    found = kinds(root)
    assert set(found) == {Kind.UNIT_MISSING, Kind.QUARANTINED}
    assert found.count(Kind.UNIT_MISSING) < 100
    assert pulled(root, sql_filter(subscribed)) == pulled(root, sql_filter(None))


def kinds(root: Path) -> list[Kind]:
    return [finding.kind for finding in Verification(root, CONFIG, production_seams()).findings()]
