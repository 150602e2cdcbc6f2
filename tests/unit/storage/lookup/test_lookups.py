"""Every read path, over a log of real records and small in-memory views."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.hosts import Host
from mqstore.storage.errors import (
    CursorError,
    KeyUnknown,
    MessageIdError,
    OffsetInsideRecord,
    OffsetOutOfRange,
    RecordBodyCorrupt,
    RecordExpired,
    RecordMagicUnknown,
)
from tests.unit.storage.lookup.memory_store import (
    HOST,
    HOST_V6,
    LOG_SIZE,
    Store,
    offsets,
)


@pytest.fixture
def store() -> Store:
    return Store()


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
