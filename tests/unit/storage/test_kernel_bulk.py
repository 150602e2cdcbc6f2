"""The kernel's look-up of many ids: each record as the look-up of its id reads it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import (
    LogWindow,
    Segment,
    StoredRecord,
    records_by_id,
    set_copy_hook,
)
from mqstore.storage.codec import message_id
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from tests.unit.storage.log_windows import bounds, window_over
from tests.unit.storage.record_examples import log_of

V4, V6 = Host.parse("10.0.0.1", 10911), Host.parse("fe80::1", 10911)
NO_LIMIT = 1 << 40


def log_with(bodies: Sequence[bytes], hosts: Sequence[Host]) -> tuple[bytearray, list[str]]:
    """A log, and the ids of its records."""
    put = [
        Message("T", 0, body, b"", V4, host, 0) for body, host in zip(bodies, hosts, strict=True)
    ]
    log = bytearray(log_of(*((each, number) for number, each in enumerate(put))))
    ids, at = [], 0
    for host in hosts:
        ids.append(message_id.encode(host, at))
        at += int.from_bytes(log[at : at + 4])
    return log, ids


def one_by_one(window: LogWindow, ids: Sequence[str], max_bytes: int) -> list[StoredRecord | None]:
    found: list[StoredRecord | None] = []
    taken = 0
    for each in ids:
        record = window.record_by_id(StoredRecord, each)
        if taken and record is not None and taken + record.size > max_bytes:
            break
        taken += 0 if record is None else record.size
        found.append(record)
    return found


@given(st.data())
def test_many_ids_give_what_each_gives(draw: st.DataObject) -> None:
    bodies = draw.draw(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
    hosts = [draw.draw(st.sampled_from([V4, V6])) for _ in bodies]
    log, ids = log_with(bodies, hosts)
    wrong = [ids[0][:-1], "", "x" * 32, "\uff11" * 32, "F" * 32, "f" * 56, ids[0].lower()]
    wrong += [message_id.encode(V4, 3), message_id.encode(V6, len(log) - 2)]
    wanted = draw.draw(st.lists(st.sampled_from(ids + wrong), max_size=20))
    covered = draw.draw(st.sampled_from([None, 0, len(log)]))
    window = window_over(log, covered=covered)
    assert records_by_id(window, StoredRecord, wanted, NO_LIMIT) == one_by_one(
        window, wanted, NO_LIMIT
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 3_000))
def test_records_end_where_the_next_one_would_be_too_much(picks: list[int], most: int) -> None:
    log, ids = log_with([bytes(100 * size) for size in range(6)], [V4] * 6)
    window, wanted = window_over(log), [ids[each] for each in picks]
    found = records_by_id(window, StoredRecord, wanted, most)
    assert found == one_by_one(window, wanted, most)
    assert found


def test_records_of_several_segments_come_in_the_order_of_the_ids() -> None:
    log, ids = log_with([b"a", b"b", b"c", b"d"], [V4] * 4)
    cut = message_id.decode(ids[2])[1]
    window = LogWindow(*bounds(0, len(log)))
    for base, part in ((0, log[:cut]), (cut, log[cut:])):
        window.add(Segment(memoryview(part), base, None), 4, 0)
    wanted = [ids[3], ids[0], ids[2], ids[0], ids[1]]
    found = records_by_id(window, StoredRecord, wanted, NO_LIMIT)
    assert [each and each.body for each in found] == [b"d", b"a", b"c", b"a", b"b"]


@given(st.data())
def test_a_damaged_record_spoils_no_other(draw: st.DataObject) -> None:
    log, ids = log_with([b"x" * 50] * 5, [V4] * 5)
    at = draw.draw(st.integers(0, len(log) - 1))
    log[at] ^= 1 << draw.draw(st.integers(0, 7))
    window = window_over(log)
    found = records_by_id(window, StoredRecord, ids, NO_LIMIT)
    assert found == [window.record_by_id(StoredRecord, each) for each in ids]
    assert sum(each is not None for each in found) >= 4


def test_nothing_is_returned_of_a_log_that_changed_meanwhile() -> None:
    log, ids = log_with([b"a", b"b"], [V4] * 2)
    words = bounds(0, len(log))
    window = LogWindow(*words)
    window.add(Segment(memoryview(log), 0, None), 4, 0)

    def change() -> None:
        words[0].value += 1

    set_copy_hook(change)
    try:
        assert records_by_id(window, StoredRecord, ids, NO_LIMIT) == [None, None]
    finally:
        set_copy_hook(None)


def test_odd_arguments_are_refused() -> None:
    window = window_over(b"")
    assert records_by_id(window, StoredRecord, [], 0) == []
    assert records_by_id(window, StoredRecord, ["0" * 32], 0) == [None]
    with pytest.raises(TypeError):
        records_by_id(window, StoredRecord, [b"0" * 32], 0)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        records_by_id(window, int, [], 0)  # type: ignore[type-var]
