"""``NextNamed`` searches a queue again only once what it names next was passed."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.queues.next_named import NextNamed

queues = st.lists(st.lists(st.integers(0, 60), max_size=8).map(sorted), max_size=6)


class Counted:
    """Queues of offsets, and how often they were searched."""

    def __init__(self, offsets: list[list[int]]) -> None:
        self.offsets = offsets
        self.count = 0

    def first_from(self, queue: int, offset: int) -> int | None:
        self.count += 1
        found = self.offsets[queue]
        return next(iter(found[bisect_left(found, offset) :]), None)

    def named(self, start: int = 0) -> NextNamed[int]:
        return NextNamed(range(len(self.offsets)), self.first_from, start)


@given(queues, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 20))).map(sorted))
def test_it_is_the_least_of_all_queues(
    offsets: list[list[int]], places: list[tuple[int, int]]
) -> None:
    named = Counted(offsets).named()

    for start, length in places:
        beyond = [each for queue in offsets for each in queue if each > start]
        within = {
            number
            for number, queue in enumerate(offsets)
            if any(start <= each < start + length for each in queue)
        }
        assert named.above(start) == min(beyond, default=None)
        assert set(named.within(start, start + length)) == within


def test_many_places_search_each_queue_once_for_each_of_its_offsets() -> None:
    counted = Counted([[number * 10, 5_000 + number] for number in range(100)])
    named = counted.named()

    for place in range(10_000):
        named.above(place)
        named.within(place, place + 1)

    assert counted.count <= 100 + 3 * 200


def test_a_place_that_was_passed_is_refused() -> None:
    named = Counted([[5]]).named(3)

    with pytest.raises(ValueError, match="offset 2 is below 3, which was passed"):
        named.above(2)
