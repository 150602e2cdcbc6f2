"""The kernel's table of unique keys against a plain dictionary, and its walk over a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import Defect, KeyTable, Placement, key_digests
from mqstore.storage.layout import HALF_TOPIC, SCHEDULE_TOPIC, SysFlag
from tests.unit.storage.small_store import HOST, SmallLog

KEYS = st.lists(st.text(max_size=3) | st.none(), max_size=40)
MADE_HERE = "made-here"


def _placement(offset: int) -> Placement:
    return Placement(offset, 100, 0, 0, 0, HOST)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), KEYS), max_size=20))
def test_a_table_answers_as_a_dictionary(rounds: list[tuple[str, list[str | None]]]) -> None:
    table, model = KeyTable(), dict[tuple[str, str], int]()
    offset = 0
    for topic, keys in rounds:
        digests = key_digests(topic, keys)
        due = [model.get((topic, key), -1) if key else -1 for key in keys]
        found = table.find(digests)
        assert due == (found or [-1] * len(keys))
        assert (found is None) == all(each == -1 for each in due)
        placements = [_placement(offset := offset + 100) for _ in keys]
        table.add(digests, placements)
        for key, placed in zip(keys, placements, strict=True):
            if key:
                model[topic, key] = placed.physical_offset
        assert table.count == len(model)


def test_a_table_grows_and_keeps_what_it_has() -> None:
    table, count = KeyTable(), 5_000
    for number in range(count):
        table.add(key_digests("t", [f"k{number}"]), [_placement(number)])
    assert table.find(key_digests("t", [f"k{n}" for n in range(count)])) == list(range(count))
    assert table.find(key_digests("u", [f"k{n}" for n in range(count)])) is None
    assert count / 0.75 <= table.memory_size / 16 <= count / 0.375


def test_placements_that_are_too_few_or_none_are_refused() -> None:
    table = KeyTable()
    with pytest.raises(ValueError, match="1 placements for 2 keys"):
        table.add(key_digests("t", ["a", "b"]), [_placement(1)])
    with pytest.raises(TypeError):
        table.add(key_digests("t", ["a"]), ["a"])  # type: ignore[list-item]  # that is the point
    with pytest.raises(TypeError):
        key_digests("t", [["unhashable"]])  # type: ignore[list-item]  # likewise


def _found(log: SmallLog) -> KeyTable:
    table = KeyTable()
    place = log.view_from(0)
    assert place is not None
    view, _, end = place
    defect, position, records, store_ms = table.add_run(
        view, 0, end, 0, made_here=MADE_HERE, max_records=100
    )
    assert (defect, position) == (Defect.NONE, end)
    assert (records > 0, store_ms > 0) == (True, True)
    return table


def _offset(table: KeyTable, topic: str, key: str) -> int:
    found = table.find(key_digests(topic, [key]))
    return -1 if found is None else found[0]


def test_a_walk_finds_what_clients_put() -> None:
    log = SmallLog()
    plain = log.put("t", props={"a": "b", "UNIQ_KEY": "plain"})
    log.put("t", props={"KEYS": "no unique key"})
    log.put("t", props={"UNIQ_KEY": MADE_HERE + "1"})
    late = log.put(SCHEDULE_TOPIC, props={"UNIQ_KEY": "late", "REAL_TOPIC": "t", "DELAY": "1"})
    half = log.put(HALF_TOPIC, props={"UNIQ_KEY": "half", "REAL_TOPIC": "t"})
    log.put(HALF_TOPIC, props={"UNIQ_KEY": "nowhere"})
    log.put("t", props={"UNIQ_KEY": "late", "REAL_TOPIC": "t", "DELAY": "1"})
    log.put("t", props={"UNIQ_KEY": "half"}, sys_flag=int(SysFlag.TRANSACTION_COMMIT))
    alone = log.put(
        "t",
        props={"UNIQ_KEY": "alone", "REAL_TOPIC": "t"},
        sys_flag=int(SysFlag.TRANSACTION_COMMIT),
    )
    log.put("t", props={"UNIQ_KEY": "back"}, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK))
    log.put("t", props={"UNIQ_KEY": "plain"})
    other = log.put("other", props={"UNIQ_KEY": "plain"})
    table = _found(log)
    assert table.count == 5
    assert _offset(table, "t", "plain") == plain
    assert _offset(table, "other", "plain") == other
    assert _offset(table, "t", "late") == late
    assert _offset(table, "t", "half") == half
    assert _offset(table, "t", "alone") == alone


def test_a_walk_stops_at_what_is_no_record_and_after_so_many() -> None:
    log = SmallLog()
    log.put(props={"UNIQ_KEY": "a"})
    second = log.put(props={"UNIQ_KEY": "b"})
    log.put(props={"UNIQ_KEY": "c"})
    end = log.max_offset
    view = memoryview(log.segments[0])
    table = KeyTable()
    found = table.add_run(view, 0, end, 0, made_here=MADE_HERE, max_records=1)
    assert found[:3] == (Defect.NONE, second, 1)
    log.damage(second, b"\xff" * 8)
    found = table.add_run(view, 0, end, 0, made_here=MADE_HERE, max_records=9)
    assert (found[1], found[2]) == (second, 1)
    assert found[0] > Defect.BLANK
    with pytest.raises(ValueError, match="outside"):
        table.add_run(view, 0, len(view) + 1, 0, made_here=MADE_HERE, max_records=9)
