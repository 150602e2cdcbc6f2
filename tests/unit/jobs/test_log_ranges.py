"""The log is cut only where a record is known to begin."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.jobs.log import at_path
from mqstore.jobs.log.ranges import RANGE_MIN, plan, size_for, split
from tests.unit.jobs.written import offsets_of, overwrite, put_forged, read_all, written
from tests.unit.storage.stores import open_store, put_some

TOPIC_AT = -30


def near_of(known: list[int]):  # type: ignore[no-untyped-def]  # a closure of the test's own
    def near(offset: int, stop: int) -> int | None:
        number = bisect_left(known, offset)
        return known[number] if number < len(known) and known[number] < stop else None

    return near


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.integers(1, 400),
    st.sets(st.integers(0, 59)),
)
def test_pieces_cover_all_and_meet_at_known_places(
    sizes: list[int], size: int, forgotten: set[int]
) -> None:
    starts = [100 + sum(sizes[:number]) for number in range(len(sizes))]
    end = 100 + sum(sizes)
    known = [start for number, start in enumerate(starts) if number not in forgotten]

    pieces = split(100, end, size, near_of(known))

    assert pieces[0][0] == 100
    assert pieces[-1][1] == end
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise(pieces))
    assert {start for start, _ in pieces[1:]} <= set(known)
    assert all(stop - start >= size for start, stop in pieces[:-1])


def test_a_piece_is_no_longer_than_the_next_known_place_makes_it() -> None:
    known = list(range(0, 1000, 10))

    pieces = split(0, 1000, 100, near_of(known))

    assert [stop - start for start, stop in pieces] == [100] * 10


def test_without_a_known_place_all_is_one_piece() -> None:
    assert split(0, 1000, 10, lambda offset, stop: None) == [(0, 1000)]


@pytest.mark.parametrize(
    ("total", "least", "found"),
    [(0, 6, RANGE_MIN), (60 << 20, 6, 10 << 20), (1 << 40, 6, 128 << 20)],
)
def test_ranges_are_as_large_as_leaves_enough_of_them(total: int, least: int, found: int) -> None:
    assert size_for(total, least, 128 << 20) == found


def test_queue_entries_cut_a_store_into_ranges(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    starts = set(offsets_of(root))
    seen = at_path.look(root)

    with seen.log.opened() as reader:
        parts = list(plan(reader, seen.segments, 10_000, 0, 1 << 62))

    assert len(parts) > 2 * len(seen.segments)
    assert {part.start for part in parts} <= starts
    assert read_all(root, partition=10_000) == read_all(root)


def test_only_ranges_with_wanted_offsets_are_planned(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    seen = at_path.look(root)

    with seen.log.opened() as reader:
        parts = list(plan(reader, seen.segments, 10_000, 70_000, 80_000))

    assert all(part.start < 80_000 and part.stop > 70_000 for part in parts)
    assert min(part.start for part in parts) <= 70_000
    assert 0 < len(parts) < 4


def test_a_forged_record_in_a_body_is_no_boundary(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        forged = [put_forged(store, number) for number in range(300)]
    seen = at_path.look(tmp_path / "store")

    with seen.log.opened() as reader:
        parts = list(plan(reader, seen.segments, 1_000, 0, 1 << 62))

    assert len(parts) > 30
    assert not {part.start for part in parts} & set(forged)
    found, corrupt = read_all(tmp_path / "store", partition=1_000)
    assert len(found) == 300
    assert corrupt == []


def test_an_entry_that_names_a_forged_record_is_not_believed(tmp_path: Path) -> None:
    """A disk that changes an entry cannot make a message out of a body."""
    with open_store(tmp_path / "store") as store:
        put_some(store, 5, queues=1)
        inner = put_forged(store, 5)
        put_some(store, 5, queues=1)
    queue = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    entries = bytearray(queue.read_bytes())
    entries[5 * 20 : 5 * 20 + 8] = inner.to_bytes(8)
    queue.write_bytes(entries)
    seen = at_path.look(tmp_path / "store")
    [segment] = seen.segments

    with seen.log.opened() as reader:
        assert reader.near(segment, inner, inner + 50) is None
        assert reader.next(segment, inner, inner + 50) is None


def test_damage_at_a_named_record_moves_the_boundary_to_the_next(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 100)
    starts = offsets_of(root)
    overwrite(root, starts[10], bytes(8))
    seen = at_path.look(root)

    with seen.log.opened() as reader:
        assert reader.next(seen.segments[0], starts[10], starts[20]) == starts[11]
