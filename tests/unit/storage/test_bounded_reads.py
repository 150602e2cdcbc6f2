"""Readers of a store that see what is confirmed: no look-up returns a message above it, whatever is
stored, confirmed and reopened in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import QueueUnknown, RecordError, StorageError, TopicUnknown
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.lookup.topic_scan import TopicQuery
from mqstore.storage.message_store import MessageStore
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.store_copies import copy_store
from tests.unit.storage.stores import message, open_store

QUEUES = 2


def _open(root: Path, **options: Any) -> MessageStore:
    return open_store(root, bounds_reads=True, **options)


@contextmanager
def _reader(root: Path) -> Iterator[StoreReader]:
    with StoreReader.open(root, production_seams()) as reader:
        yield reader


def _put(store: MessageStore, number: int) -> Placement:
    return store.append(message(store, number, queue_id=number % QUEUES))


def _of_queues(lookups: Lookups) -> list[Record]:
    found: list[Record] = []
    for queue_id in range(QUEUES):
        try:
            pull = lookups.records("T", queue_id, 0, 1000)
        except (QueueUnknown, TopicUnknown):
            continue
        assert not pull.unreadable
        assert pull.next_offset == pull.max_offset
        assert lookups.queue_range("T", queue_id).max_offset == pull.max_offset
        found += pull.records
    return sorted(found, key=lambda each: each.physical_offset)


def _by_place(lookups: Lookups, places: list[Placement]) -> list[Record]:
    found = []
    for each in places:
        try:
            found.append(lookups.by_message_id(each.offset_message_id))
        except RecordError:
            raise
        except StorageError:
            continue
    return found


def _by_key(lookups: Lookups, places: list[Placement]) -> list[Record]:
    numbers = range(len(places))
    return [found for each in numbers for found in lookups.by_key("T", f"k{each}").records]


def _by_scan(reader: StoreReader) -> list[Record]:
    try:
        answer = reader.scans.scan(TopicQuery("T"), limit=1000, max_bytes=1 << 20)
    except (QueueUnknown, TopicUnknown):
        return []
    return sorted(answer.records, key=lambda each: each.physical_offset)


def _ends(records: list[Record]) -> list[int]:
    return [each.physical_offset + each.size for each in records]


def _check(reader: StoreReader, own: Lookups, places: list[Placement], confirmed: int) -> None:
    """Every way of reading finds exactly what is confirmed."""
    expected = [each.end for each in places if each.end <= confirmed]
    for lookups in (reader.lookups, own):
        assert _ends(_of_queues(lookups)) == expected
        assert _ends(_by_place(lookups, places)) == expected
        assert _ends(_by_key(lookups, places)) == expected
    assert _ends(_by_scan(reader)) == expected


def test_what_is_confirmed_is_found_every_way_and_nothing_else(root: Path) -> None:
    with _open(root) as store, _reader(root) as reader:
        places = [_put(store, number) for number in range(10)]
        for confirmed in (0, *(each.end for each in places)):
            store.confirm(confirmed, 1)
            _check(reader, store.reads, places, confirmed)
            assert len(_of_queues(store.lookups)) == 10
        state = reader.snapshot()
        assert (state.confirmed_offset, state.in_sync) == (places[-1].end, 1)


def test_a_lower_offset_takes_nothing_back(root: Path) -> None:
    with _open(root) as store, _reader(root) as reader:
        places = [_put(store, number) for number in range(3)]
        store.confirm(places[1].end, 2)
        store.confirm(places[0].end, 1)
        _check(reader, store.reads, places, places[1].end)


def test_an_offset_may_be_confirmed_before_it_is_stored(root: Path) -> None:
    """A follower knows what is confirmed of the log that it is still receiving."""
    with _open(root) as store, _reader(root) as reader:
        first = _put(store, 0)
        store.confirm(3 * first.end, 2)
        places = [first, *(_put(store, number) for number in range(1, 5))]
        store.state.set_max(store.log.max_offset)  # as the log of a follower does
        assert _ends(_of_queues(reader.lookups)) == [each.end for each in places[:3]]


def test_a_confirmation_ends_a_wait_and_a_message_does_not(root: Path) -> None:
    with _open(root) as store, _reader(root) as reader:
        seen = reader.state.arrivals
        placed = _put(store, 0)
        assert reader.state.arrivals == seen
        waiter = threading.Thread(target=reader.wait_for_arrival, args=(seen, 60))
        waiter.start()
        store.confirm(placed.end, 1)
        waiter.join(30)
        assert not waiter.is_alive()


def test_segments_are_served_up_to_what_is_confirmed(root: Path) -> None:
    with _open(root) as store, _reader(root) as reader:
        places = [_put(store, number) for number in range(3)]
        store.log.sync()
        assert reader.segments.all() == []
        store.confirm(places[1].end, 1)
        assert [each.size for each in reader.segments.all()] == [places[1].end]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_not_confirmed_stays_unseen_over_a_restart(root: Path, *, is_clean: bool) -> None:
    store = _open(root)
    places = [_put(store, number) for number in range(4)]
    store.confirm(places[1].end, 1)
    if is_clean:
        store.close()
    else:
        root = copy_store(root, root.with_name("killed"))
    with _open(root) as again, _reader(root) as reader:
        _check(reader, again.reads, places, places[1].end)
        places.append(_put(again, 4))
        _check(reader, again.reads, places, places[1].end)
        again.confirm(places[-1].end, 1)
        _check(reader, again.reads, places, places[-1].end)
    if not is_clean:
        store.close()


def test_without_the_option_readers_see_all_again(root: Path) -> None:
    with _open(root) as store:
        places = [_put(store, number) for number in range(4)]
    with open_store(root) as store, _reader(root) as reader:
        _check(reader, store.reads, places, places[-1].end)
        assert reader.state.log_end == places[-1].end
    with _open(root) as store, _reader(root) as reader:
        _check(reader, store.reads, places, places[-1].end)


class BoundedReads(RuleBasedStateMachine):
    """A store whose readers are bounded, over puts, confirmations and restarts."""

    @initialize()
    def open(self) -> None:
        self.directory = TemporaryDirectory()
        self.root = Path(self.directory.name) / "store"
        self.store = _open(self.root)
        self.reader = StoreReader.open(self.root, production_seams())
        self.places: list[Placement] = []
        self.confirmed = 0

    @rule(count=st.integers(1, 5), as_run=st.booleans())
    def put(self, count: int, *, as_run: bool) -> None:
        first = len(self.places)
        if not as_run:
            self.places += [_put(self.store, number) for number in range(first, first + count)]
            return
        messages = [
            message(self.store, number, queue_id=number % QUEUES)
            for number in range(first, first + count)
        ]
        self.places += self.store.append(messages)[0]

    @rule(share=st.floats(0, 1))
    def confirm(self, share: float) -> None:
        ends = [0, *(each.end for each in self.places)]
        offset = ends[round(share * (len(ends) - 1))]
        self.store.confirm(offset, 1)
        self.confirmed = max(self.confirmed, offset)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = _open(self.root)

    @invariant()
    def readers_see_what_is_confirmed(self) -> None:
        _check(self.reader, self.store.reads, self.places, self.confirmed)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.reader.close()
            self.store.close()
            self.directory.cleanup()


TestBoundedReads = BoundedReads.TestCase
TestBoundedReads.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
