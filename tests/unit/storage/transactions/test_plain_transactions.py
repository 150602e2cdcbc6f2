"""Plain begins and decisions store what the slow path does, or are left to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from mqstore.service.transaction_structs import NewHalf
from mqstore.storage.codec.hosts import Host, parse_host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import PropertyError, PutRefused
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, StoreFormat
from mqstore.storage.transactions import (
    Begin,
    BeginReader,
    BeginResult,
    Decide,
    DecisionResult,
    NewRecord,
    State,
    TransactionEngine,
    Verdict,
    begin_reader,
    table,
)
from tests.long_runs import examples
from tests.unit.storage.transactions.engine_bench import (
    GROUP,
    QUEUE_ID,
    TOPIC,
    Bench,
    counted,
)

CLIENT: Final = "10.0.0.1:99"
FORMATS: Final = st.sampled_from(list(StoreFormat))
VERDICTS: Final = st.sampled_from([Verdict.COMMIT, Verdict.ROLLBACK])
REASONS: Final = st.sampled_from(["producer", "", "two words", "größe", 'a "quote"'])


class Side:
    """An engine that takes the kernel's way where it can, or never."""

    def __init__(self, store_format: StoreFormat, *, is_plain: bool) -> None:
        self.bench = Bench(store_format)
        self.is_plain = is_plain
        keys = UniqueKeys(self.bench.world.machine.seams)
        keys.next()  # of this month
        self.reader = begin_reader(keys)
        self.taken = 0
        """How often the kernel's way was taken."""

    @property
    def engine(self) -> TransactionEngine:
        return self.bench.engine

    @property
    def now_ms(self) -> int:
        return self.bench.world.machine.clock.now_ms()

    def begin(self, message: dict[str, Any], group: str = GROUP) -> Any:
        request = self.reader.read(group, TOPIC, half(message), self.now_ms)
        if self.is_plain and request is not None:
            begun = self.engine.begin_plain(request, QUEUE_ID, parse_host(CLIENT))
            if begun is not None:
                self.taken += 1
                return begun
        table = dict(message.get("properties", {}))
        if "keys" in message:
            table["KEYS"] = " ".join(message["keys"])
        table["UNIQ_KEY"] = message["uniqKey"]
        if "tags" in message:
            table["TAGS"] = message["tags"]
        body, flag = message["body"].encode(), message.get("flag", 0)
        record = NewRecord(TOPIC, QUEUE_ID, body, table, CLIENT, self.now_ms, flag)
        (found,) = self.engine.take([Begin(group, [record])], ())[0]
        return found

    def decide(self, key: str, verdict: Verdict, why: str) -> Any:
        if self.is_plain:
            found = self.engine.decide_plain(key, verdict, why)
            if found is not None:
                self.taken += 1
                return found
        try:
            return self.engine.take((), [Decide(key, verdict, why)])[1][0]
        except PropertyError as error:
            return error

    def records(self) -> list[tuple[Any, ...]]:
        """All records but for generated keys; the clock is simulated."""
        log, found = self.bench.world.store.log, []
        offset = log.min_offset
        while offset < log.max_offset:
            record = log.record_at(offset)
            found.append(fields_of(record))
            offset += record.size
        return found


def half(message: dict[str, Any]) -> Any:
    """A message of a request to begin a transaction, decoded."""
    return msgspec.convert(message, NewHalf)


def fields_of(record: Record) -> tuple[Any, ...]:
    properties = list((record.properties or {}).items())
    if record.topic == OP_TOPIC:
        properties = [each for each in properties if each[0] != "UNIQ_KEY"]
    place = record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.size
    hosts = record.born_host, record.store_host
    times = record.born_timestamp_ms, record.store_timestamp_ms
    flags = record.flag, record.sys_flag, record.reconsume_times
    return (
        *(place, hosts, times, flags, record.prepared_transaction_offset),
        *(record.body, properties),
    )


messages = st.fixed_dictionaries(
    {"body": st.sampled_from(["a", "größe", "x" * 3_000])},
    optional={
        "keys": st.lists(st.sampled_from(["k1", "k2"]), min_size=1, max_size=3),
        "tags": st.sampled_from(["paid", "größe"]),
        "properties": st.dictionaries(
            st.sampled_from(["colour", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__"]),
            st.sampled_from(["red", "7", "größe"]),
        ),
        "flag": st.integers(-3, 3),
    },
)
numbers = st.integers(0, 3)
begins = st.tuples(st.just("begin"), numbers, messages)
decisions = st.tuples(st.just("decide"), numbers, VERDICTS, REASONS)


@settings(max_examples=examples(40), deadline=None)
@given(FORMATS, st.lists(begins | decisions, min_size=1, max_size=8))
def test_records_and_results_are_those_of_the_general_way(
    store_format: StoreFormat, actions: list[tuple[Any, ...]]
) -> None:
    sides = [Side(store_format, is_plain=is_plain) for is_plain in (True, False)]
    for kind, number, *rest in actions:
        key = f"key{number}"
        if kind == "begin":
            plain, general = (side.begin(rest[0] | {"uniqKey": key}) for side in sides)
        else:
            plain, general = (side.decide(key, *rest) for side in sides)
        assert type(plain) is type(general)
        assert str(plain) == str(general)
    assert sides[0].records() == sides[1].records()
    for state in State:
        assert sides[0].bench.snapshots(state) == sides[1].bench.snapshots(state)
    assert sides[0].engine.counts.decided == sides[1].engine.counts.decided
    assert sides[0].engine.half_counts == sides[1].engine.half_counts


@pytest.fixture(params=list(StoreFormat), ids=lambda found: found.value)
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    found = Side(request.param, is_plain=True)
    found.begin({"body": "x", "uniqKey": "first"})  # a queue's first message makes its file
    found.decide("first", Verdict.COMMIT, "producer")
    found.taken = 0
    yield found


def test_a_plain_begin_and_its_commit_are_each_one_call(side: Side) -> None:
    store = side.bench.world.store
    with (
        counted(store, "append") as appends,
        counted(store.lookups, "by_key", "records", "transaction_types") as reads,
    ):
        begun = side.begin({"body": "a", "uniqKey": "a"})
        decided = side.decide("a", Verdict.COMMIT, "producer")
    assert isinstance(begun, BeginResult)
    assert isinstance(decided, DecisionResult)
    assert (side.taken, appends.count, reads.count) == (2, 0, 0)
    assert side.bench.bodies() == [b"x", b"a"]
    half = side.bench.records(HALF_TOPIC)[-1]
    assert begun.end == half.physical_offset + half.size
    assert decided.end == store.log.max_offset


def test_a_restart_finds_what_was_begun_and_decided_in_one_call(side: Side) -> None:
    for key in "abc":
        side.begin({"body": key, "uniqKey": key})
    side.decide("a", Verdict.COMMIT, "producer")
    side.decide("b", Verdict.ROLLBACK, "producer")
    assert side.taken == 5
    before = {key: side.engine.find(key) for key in "abc"}
    side.bench.restart()
    assert {key: side.engine.find(key) for key in "abc"} == before
    assert side.bench.keys() == ["c"]
    side.decide("c", Verdict.COMMIT, "producer")  # the process generates its first key
    side.begin({"body": "d", "uniqKey": "d"})
    side.decide("d", Verdict.COMMIT, "producer")
    assert side.taken == 7
    assert side.bench.bodies() == [b"x", b"a", b"c", b"d"]


def test_a_transaction_is_checked_as_others_are(side: Side) -> None:
    side.begin({"body": "a", "uniqKey": "a"})
    side.bench.step(7)
    assert side.bench.check() == ["a"]
    taken = side.taken
    assert isinstance(side.decide("a", Verdict.COMMIT, "producer"), DecisionResult)
    assert side.taken == taken  # there are two copies of its half message
    assert side.bench.bodies() == [b"x", b"a"]


def left(side: Side, act: Callable[[], object]) -> bool:
    """Whether a request is left to the slow path, which had nothing stored for it."""
    end, taken = side.bench.world.store.log.max_offset, side.taken
    assert act() is None
    return (side.bench.world.store.log.max_offset, side.taken) == (end, taken)


def test_a_known_key_is_left_to_the_general_way(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = side.reader.read(GROUP, TOPIC, half({"body": "x", "uniqKey": "first"}), side.now_ms)
    assert request is not None
    host = parse_host(CLIENT)
    assert left(side, lambda: side.engine.begin_plain(request, QUEUE_ID, host))
    monkeypatch.setattr(table, "HISTORY_MAX", 0)
    side.begin({"body": "x", "uniqKey": "second"})
    side.decide("second", Verdict.ROLLBACK, "producer")
    assert left(side, lambda: side.engine.begin_plain(request, QUEUE_ID, host))


def test_an_unknown_or_decided_transaction_is_left_to_the_general_way(side: Side) -> None:
    for key in ("first", "unknown"):
        assert left(side, partial(side.engine.decide_plain, key, Verdict.COMMIT, "producer"))


def test_a_half_message_in_an_earlier_segment_is_left_to_the_general_way(side: Side) -> None:
    side.begin({"body": "a", "uniqKey": "a"})
    log = side.bench.world.store.log
    base = log.files.files[-1].base_offset
    number = 0
    while log.files.files[-1].base_offset == base:
        side.begin({"body": "x" * 1_000, "uniqKey": f"f{number}"})
        number += 1
    assert left(side, lambda: side.engine.decide_plain("a", Verdict.COMMIT, "producer"))
    assert side.engine.decide_plain("a", Verdict.ROLLBACK, "producer") is not None


def test_while_a_thread_uses_the_engine_nothing_is_done_at_once(side: Side) -> None:
    side.begin({"body": "a", "uniqKey": "a"})
    with side.engine._lock:
        assert left(side, lambda: side.engine.decide_plain("a", Verdict.COMMIT, "producer"))


def test_where_a_queue_has_other_records_than_memory_nothing_is_done_at_once(side: Side) -> None:
    """The slow path then finds that memory is wrong."""
    side.begin({"body": "a", "uniqKey": "a"})
    bench = side.bench
    for topic in (HALF_TOPIC, OP_TOPIC):
        bench.append([NewRecord(topic, 0, b"1", {"UNIQ_KEY": f"of {topic}"}, CLIENT, 1)])
    request = side.reader.read(GROUP, TOPIC, half({"body": "b", "uniqKey": "b"}), side.now_ms)
    assert request is not None
    assert left(side, lambda: side.engine.begin_plain(request, QUEUE_ID, parse_host(CLIENT)))
    assert left(side, lambda: side.engine.decide_plain("a", Verdict.COMMIT, "producer"))


# half messages as brokers write them -----------------------------------------------------------

NAMES: Final = [
    *("UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "PGROUP", "TRAN_MSG", "KEYS", "TAGS", "__CRC32#"),
    *("DELAY", "INNER_MULTI_DISPATCH", "TRANSACTION_CHECK_TIMES", "a", "größe", ""),
]
VALUES: Final = ["k", "T", "3", "0", "a b", "größe", "", "x\x01y", HALF_TOPIC, OP_TOPIC]
chunks = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(
    lambda pair: "\x01".join(pair).encode()
) | st.sampled_from([b"no separator", b"\xff\x01\xff"])


@settings(max_examples=examples(60), deadline=None)
@given(
    FORMATS,
    st.lists(chunks, max_size=4),
    st.permutations([b"UNIQ_KEY\x01k", b"REAL_TOPIC\x01T", b"REAL_QID\x013", b"TRAN_MSG\x01true"]),
    st.booleans(),
    st.sampled_from([0, 1, 1 << 4]),
)
def test_a_commit_of_any_half_message_is_that_of_the_general_way(
    store_format: StoreFormat,
    extra: list[bytes],
    own: list[bytes],
    trailing: bool,
    sys_flag: int,
) -> None:
    sides = [Side(store_format, is_plain=is_plain) for is_plain in (True, False)]
    results = []
    for side in sides:
        side.begin({"body": "x", "uniqKey": "first"})
        side.decide("first", Verdict.COMMIT, "producer")
        store = side.bench.world.store
        properties = b"\x02".join([*own[:2], *extra, *own[2:]]) + (b"\x02" if trailing else b"")
        host = Host(bytes(range(16)), 7) if sys_flag & 1 << 4 else store.host
        message = Message(HALF_TOPIC, 0, b"body", properties, host, store.host, 5, 9, sys_flag & 1)
        try:
            store.append(message)
        except PutRefused:
            reject()
        side.bench.restart()
        (key,) = side.bench.keys() or [""]
        results.append(str(side.decide(key, Verdict.COMMIT, "producer")))
    assert results[0] == results[1]
    assert sides[0].records() == sides[1].records()


# requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"body": ""},
        {"bodyBase64": "x"},
        {"body": "a", "bodyBase64": "YQ=="},
        {"body": "a", "uniqKey": "a b"},
        {"body": "a", "properties": {"TRAN_MSG": "true"}},
        {"body": "a", "properties": {"MQSTORE_TRANSACTION": "other"}},
        {"body": "a", "properties": {"__transactionId__": "other"}},
        {"body": "a", "properties": {"p": "x" * (30 << 10)}},
    ],
)
def test_a_message_that_is_not_plain_is_not_read(message: dict[str, Any]) -> None:
    assert reader().read(GROUP, TOPIC, half(message), 0) is None


def test_a_plain_message_is_read() -> None:
    message = half({"body": "a\n", "uniqKey": "k", "queueId": 2})
    request = reader().read("g%|_-1", TOPIC, message, 17)
    assert request is not None
    assert (request.group, request.topic, request.key) == ("g%|_-1", TOPIC, "k")
    assert (request.has_key, request.queue_id, request.born_ms) == (True, 2, 17)
    assert request.body == b"a\n"


def test_a_message_without_a_key_gets_one() -> None:
    side = Side(StoreFormat.V4_9, is_plain=True)
    keys = set()
    for _ in range(3):
        request = side.reader.read(GROUP, TOPIC, half({"bodyBase64": "YQ=="}), side.now_ms)
        assert request is not None
        assert (request.has_key, request.queue_id, len(request.key)) == (False, -1, 32)
        keys.add(request.key)
    assert len(keys) == 3


def reader() -> BeginReader:
    return Side(StoreFormat.V4_9, is_plain=True).reader
