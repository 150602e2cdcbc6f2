"""A search by time in one call: what the window finds, or no reply."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import PulledQueue, Segment, TimeLane, first_at
from tests.unit.storage.log_windows import entries_of
from tests.unit.storage.record_examples import TIME
from tests.unit.storage.test_pull_lane import ENDING, FIELDS, START, MemoryQueue, Store, fields_of

BEGIN = b'{"topic":"T","queueId":0,"timestamp":'


class Searched(MemoryQueue):
    """A queue that has the files of pulls."""

    pulled: PulledQueue


class Times(Store):
    """A log whose records have other store times, a second apart."""

    def __init__(self, count: int, *, covered: bool = False, body: int = 100) -> None:
        super().__init__([bytes(body)] * count, per_file=5)
        for number, at in enumerate(self.starts):
            self.log[at + 56 : at + 64] = (TIME + 1_000 * number).to_bytes(8)
        entries = entries_of(self.log, 0, len(self.log)) if covered else None
        self.window.forget()
        self.window.add(Segment(memoryview(self.log), 0, entries), 4, 0)
        self.searched = Searched(self.entries, 5)
        self.searched.pulled = self.pulled

    def find(self, at_ms: int, max_bytes: int = 1 << 18) -> bytes | None:
        lane = TimeLane(BEGIN, shard=7, max_bytes=max_bytes)
        return lane.find(self.searched, at_ms, START, FIELDS, ENDING)

    def offset(self, at_ms: int, max_bytes: int = 1 << 18) -> int | None:
        reply = self.find(at_ms, max_bytes)
        return None if reply is None else json.loads(fields_of(reply)[1])["offset"]


def test_a_reply_has_the_offset_and_the_bounds() -> None:
    times = Times(12)
    times.aim(0)
    fields, body = fields_of(times.find(TIME + 2_500))
    assert list(fields) == ["content-type", "content-length", "x-a", "x-request-id"]
    assert json.loads(body) == {
        "topic": "T",
        "queueId": 0,
        "timestamp": TIME + 2_500,
        "offset": 3,
        "minOffset": 0,
        "maxOffset": 12,
        "shard": 7,
    }


@pytest.mark.parametrize("covered", [True, False])
def test_each_time_is_found_over_all_files_of_a_queue(covered: bool) -> None:
    for number in range(23):
        times = Times(23, covered=covered)
        times.aim(0)
        assert times.offset(TIME + 1_000 * number) == number
        assert times.offset(TIME + 1_000 * number + 1) == number + 1


def test_a_queue_is_searched_only_after_it_was_aimed_at() -> None:
    times = Times(3)
    assert times.offset(TIME) is None
    times.aim(0)
    assert times.offset(TIME) == 0
    times.words[0].value = 1
    assert times.offset(TIME) is None


def test_more_bytes_than_allowed_are_left_to_the_general_way() -> None:
    times = Times(40, covered=True, body=5_000)
    times.aim(0)
    assert times.offset(TIME + 1, max_bytes=1 << 16) is None
    assert first_at(times.window, times.searched, TIME + 1, 0, 40) == 1
    assert times.offset(TIME + 1, max_bytes=0) == 1, "blocks that were compared are not read again"


@given(st.data(), st.integers(-1, 24), st.booleans())
def test_an_offset_is_the_one_that_the_window_finds_whatever_changed(
    draw: st.DataObject, number: int, covered: bool
) -> None:
    times = Times(20, covered=covered)
    times.aim(0)
    for changed in draw.draw(st.lists(st.sampled_from([times.entries, times.log]), max_size=3)):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at] ^= 1 << draw.draw(st.integers(0, 7))
    found = times.offset(TIME + 1_000 * number)
    assert found in (None, first_at(times.window, times.searched, TIME + 1_000 * number, 0, 20))
