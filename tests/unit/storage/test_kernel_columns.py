"""Records as columns: what Arrow's layout says of them is what the records say one by one."""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import Defect, RecordColumns
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import TOMBSTONE_MARK
from tests.unit.storage import kernel_model as model
from tests.unit.storage.record_examples import TIME, damaged, log_of, messages, ordinary

INT64S = ("physical_offset", "queue_offset", "prepared_transaction_offset")
INT32S = ("size", "queue_id", "flag", "sys_flag", "body_crc", "reconsume_times", "version")
TIMES = ("born_time", "store_time")
TEXTS = ("topic", "born_host", "store_host", "tags", "keys", "uniq_key", "real_topic")
NAMES = (*INT64S, *INT32S, *TIMES, *TEXTS, "body", "properties")
YEAR_1_MS, YEAR_9999_MS = -62135596800000, 253402300799999
ALL = 1 << 30

logs = st.lists(
    st.tuples(
        messages().filter(lambda m: not model.torn_properties(m.properties or b"a\x01b")),
        st.integers(0, 9),
    ),
    max_size=6,
).map(lambda entries: log_of(*entries))


def rows_of(columns: RecordColumns, names: tuple[str, ...] = NAMES) -> list[tuple[Any, ...]]:
    """Arrow's layout read in plain Python."""
    count = columns.rows
    return list(zip(*map(column, names, columns.take(), [count] * len(names)), strict=True))


def column(name: str, parts: tuple[bytes | None, ...], count: int) -> list[Any]:
    valid, *rest = parts
    data = [part for part in rest if part is not None]
    values: list[Any]
    if name in INT64S or name in TIMES:
        values = list(array("q", data[0]))
    elif name in INT32S:
        values = list(array("i", data[0]))
    elif name == "properties":
        names, contents = texts(data[1], data[2]), texts(data[3], data[4])
        pairs = [(n.decode(), c.decode()) for n, c in zip(names, contents, strict=True)]
        values = [dict(pairs[a:b]) for a, b in between(data[0])]
    else:
        values = texts(*data)
        values = values if name == "body" else [text.decode() for text in values]
    assert len(values) == count
    if valid is None:
        return values
    return [v if valid[n // 8] >> n % 8 & 1 else None for n, v in enumerate(values)]


def between(ends: bytes) -> list[tuple[int, int]]:
    numbers = [end for (end,) in struct.iter_unpack("=i", ends)]
    return list(pairwise(numbers))


def texts(ends: bytes, data: bytes) -> list[bytes]:
    return [data[start:end] for start, end in between(ends)]


def expected(found: Record) -> tuple[Any, ...]:
    properties = found.properties or {}
    numbers = [getattr(found, name) for name in (*INT64S, *INT32S)]
    times = [
        time * 1000 if YEAR_1_MS <= time <= YEAR_9999_MS else None
        for time in (found.born_timestamp_ms, found.store_timestamp_ms)
    ]
    hosts = [
        f"[{h.address_text}]:{h.port}" if h.is_v6 else f"{h.address_text}:{h.port}"
        for h in (found.born_host, found.store_host)
    ]
    named = [properties.get(name) for name in ("TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC")]
    return (*numbers, *times, found.topic, *hosts, *named, found.body, properties)


@given(logs)
def test_columns_say_what_each_record_says(log: bytes) -> None:
    found = [each for each in record.scan(log, 0, len(log), 0) if isinstance(each, Record)]
    columns = RecordColumns(NAMES)
    assert columns.add(log, 0, len(log), 0, ALL) == (Defect.NONE, 0, len(log))
    assert rows_of(columns) == [expected(each) for each in found]
    assert columns.rows == 0


@given(damaged(logs))
def test_reading_ends_where_the_strict_reader_does(log: bytes) -> None:
    columns = RecordColumns(("physical_offset", "properties"))
    defect, size, position = columns.add(log, 0, len(log), 0, ALL)
    _, _, _, _, starts = model.check_run(log, 0, len(log), 0, True, ALL)
    assert [row[0] for row in rows_of(columns, ("physical_offset", "properties"))] == starts
    if position < len(log):
        assert (defect, size) == model.check(log, position, len(log), position, True)
    else:
        assert (defect, size) == (Defect.NONE, 0)


def test_malformed_text_is_read_as_java_reads_it() -> None:
    found = ordinary(properties=b"TAGS\x01\xed\xa0\x80!\x02odd\xff\x01v\x02TAGS\x01")
    log = log_of((found, 0))
    columns = RecordColumns(("tags", "properties"))
    columns.add(log, 0, len(log), 0, ALL)
    [(tags, properties)] = rows_of(columns, ("tags", "properties"))
    whole = record.decode(log, 0, len(log), physical_offset=0)
    assert (tags, properties) == (whole.tags, whole.properties)
    assert tags == "\ufffd!"


def test_the_last_property_of_a_name_with_a_value_counts() -> None:
    found = ordinary(properties=b"KEYS\x01a\x02KEYSX\x01b\x02KEYS\x01c\x01d\x02KEYS\x01\x02KEYS")
    log = log_of((found, 0))
    columns = RecordColumns(("keys", "tags"))
    columns.add(log, 0, len(log), 0, ALL)
    assert rows_of(columns, ("keys", "tags")) == [("c\x01d", None)]


@pytest.mark.parametrize("time", [YEAR_1_MS - 1, YEAR_9999_MS + 1, 2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has_is_null(time: int) -> None:
    message = ordinary()
    message.born_timestamp_ms = time
    log = log_of((message, 0))
    columns = RecordColumns(("born_time", "store_time"))
    columns.add(log, 0, len(log), 0, ALL)
    assert rows_of(columns, ("born_time", "store_time")) == [(None, TIME * 1000)]


def three() -> tuple[bytes, list[int]]:
    log = log_of((ordinary("a"), 0), (ordinary("b"), 0), (ordinary("a"), 1), step_ms=10)
    size = len(log) // 3
    return log, [0, size, 2 * size]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({"topics": [b"a"]}, [0, 2]),
        ({"topics": [b"b", b"c"]}, [1]),
        ({"topics": []}, []),
        ({"since_ms": TIME + 10}, [1, 2]),
        ({"until_ms": TIME + 10}, [0]),
        ({"lowest": 1}, [1, 2]),
    ],
)
def test_only_what_is_wanted_becomes_a_row(wanted: dict[str, Any], numbers: list[int]) -> None:
    log, starts = three()
    columns = RecordColumns(("physical_offset",), **wanted)
    assert columns.add(log, 0, len(log), 0, ALL) == (Defect.NONE, 0, len(log))
    assert [row[0] for row in rows_of(columns, ("physical_offset",))] == [
        starts[number] for number in numbers
    ]


def test_reading_goes_on_where_it_stopped_and_a_record_ends_behind_the_stop() -> None:
    log, starts = three()
    columns = RecordColumns(("physical_offset",))
    assert columns.add(log, 0, len(log), 0, 1) == (Defect.NONE, 0, starts[1])
    assert columns.add(log, starts[1], starts[1] + 1, 0, ALL) == (Defect.NONE, 0, starts[2])
    assert columns.rows == 2


def test_a_record_that_the_bytes_cut_off_is_left() -> None:
    log, starts = three()
    columns = RecordColumns(("physical_offset",))
    ended = columns.add(log[:-1], 0, len(log), 0, ALL)
    assert ended == (Defect.TRUNCATED, 0, starts[2])


def test_a_tombstone_is_no_row() -> None:
    lost = ordinary(body=bytes(8), properties=b"")
    lost.prepared_transaction_offset = TOMBSTONE_MARK
    log = log_of((ordinary(), 0), (lost, 1), (ordinary(), 2))
    columns = RecordColumns(("queue_offset",))
    columns.add(log, 0, len(log), 0, ALL)
    size = record.size_of(ordinary(), 1)
    assert columns.take_tombstones() == [(size, record.size_of(lost, 1))]
    assert columns.take_tombstones() == []
    assert [row[0] for row in rows_of(columns, ("queue_offset",))] == [0, 2]


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(KeyError):
        RecordColumns(("colour",))
