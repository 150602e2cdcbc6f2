"""Look-ups by queue and time, over a log of real records and small in-memory views."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import (
    OffsetOutOfRange,
    QueueUnknown,
    StoreNotOpen,
    TopicUnknown,
)
from mqstore.storage.lookup.answers import PullStatus
from mqstore.storage.queues.queue_entry import QueueEntry
from tests.unit.storage.lookup.memory_store import (
    HOLE,
    Store,
    offsets,
)


@pytest.fixture
def store() -> Store:
    return Store()


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
