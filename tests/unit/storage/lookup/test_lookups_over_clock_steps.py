"""Look-ups by time in a log whose clock was set forward by a day, and back again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.lookup.topic_scan import TopicQuery, TopicScans
from mqstore.storage.store_reader import StoreReader
from tests.simulation.delayed_store import ROOT, DelayedStore

DAY_MS = 86_400_000
QUEUE = "T", 3
COUNT = 6
"""Messages of each time: before, while it was ahead, and after."""


@pytest.fixture
def world() -> DelayedStore:
    world = DelayedStore()
    for step_ms in (DAY_MS, -DAY_MS, 0):
        for _ in range(COUNT):
            world.put(len(times(world)), 0)
            world.machine.clock.advance(1)
        world.machine.clock.step(step_ms)
    return world


def times(world: DelayedStore) -> list[int]:
    """When each message of the queue was stored, as it says."""
    return [found.store_timestamp_ms for found in world.records(*QUEUE)]


@pytest.fixture(params=["writer", "reader", "after a restart", "reader that was there before"])
def view(
    request: pytest.FixtureRequest, world: DelayedStore
) -> Iterator[tuple[Lookups, TopicScans]]:
    if request.param == "writer":
        store = world.store
        yield store.lookups, TopicScans(store.lookups, store.log, store.queues, store.state)
        return
    if request.param == "after a restart":
        world.kill()
    with StoreReader.open(ROOT, world.machine.seams) as reader:
        if request.param == "reader that was there before":
            reader.lookups.offset_by_time(*QUEUE, 0)
        yield reader.lookups, reader.scans


def test_times_follow_the_clock(world: DelayedStore) -> None:
    found = times(world)
    before, ahead, after = found[:COUNT], found[COUNT : 2 * COUNT], found[2 * COUNT :]
    assert before == sorted(before)
    assert after == sorted(after)
    assert min(ahead) - max(before) > DAY_MS - 10_000
    assert min(ahead) - max(after) > DAY_MS - 30_000
    assert [step.step_ms for step in world.store.clock.steps.view.steps] == [DAY_MS, -DAY_MS]


def test_nothing_of_a_time_or_later_stands_before_the_offset_of_that_time(
    world: DelayedStore, view: tuple[Lookups, TopicScans]
) -> None:
    found = times(world)
    for wanted in sorted({each + near for each in found for near in (-1, 0, 1)}):
        expected = next((n for n, each in enumerate(found) if each >= wanted), len(found))
        assert view[0].offset_by_time(*QUEUE, wanted) == expected


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_a_topic_is_found_by_time_page_by_page(
    world: DelayedStore, view: tuple[Lookups, TopicScans], newest_first: bool, limit: int
) -> None:
    found = times(world)
    for begin in found[1::5]:
        for end in found[2::5]:
            query = TopicQuery("T", begin, end, newest_first=newest_first)
            bodies, cursor, is_last = [], None, False
            while not is_last:
                answer = view[1].scan(query, limit=limit, max_bytes=1 << 20, cursor=cursor)
                bodies += [int(each.body) for each in answer.records]
                cursor, is_last = answer.cursor, answer.cursor is None
            expected = [number for number, each in enumerate(found) if begin <= each <= end]
            assert bodies == (expected[::-1] if newest_first else expected)
            assert answer.complete


def test_a_key_is_found_by_time(world: DelayedStore, view: tuple[Lookups, TopicScans]) -> None:
    for number, stored_ms in enumerate(times(world)):
        near = view[0].by_key("T", f"u{number}", from_ms=stored_ms, to_ms=stored_ms)
        assert [int(each.body) for each in near.records] == [number]
        for begin, end in ((stored_ms + 1, stored_ms + 9), (stored_ms - 9, stored_ms - 1)):
            assert not view[0].by_key("T", f"u{number}", from_ms=begin, to_ms=end).records
