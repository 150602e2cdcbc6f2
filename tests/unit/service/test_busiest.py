"""Series of a counter: a few by name, the others as one sum."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.busiest import FACTOR, Busiest

REST = "rest"
KEYS = st.sampled_from("abcdefgh")
TURNS = st.lists(st.lists(st.tuples(KEYS, st.integers(1, 20)), max_size=6), max_size=12)


@given(turns=TURNS, maximum=st.integers(0, 4))
def test_a_series_only_grows_and_every_count_is_in_one(
    turns: list[list[tuple[str, int]]], maximum: int
) -> None:
    busiest = Busiest[str](maximum, lambda _: REST)
    counts: dict[str, list[int]] = {}
    before: dict[str, tuple[int, ...]] = {}
    grown: Counter[str] = Counter()
    for turn in turns:
        for key, count in turn:
            found = counts.setdefault(key, [0, 0])
            found[0] += count
            found[1] += 10 * count
        shown = busiest.select(counts)
        assert len(shown.keys() - {REST}) == min(maximum, len(counts))
        for key, (messages, size) in shown.items():
            assert size == 10 * messages
            # As Prometheus does: a series that begins or begins anew grew by what it shows.
            grown[key] += messages - before.get(key, (0, 0))[0]
            assert key not in before or messages >= before[key][0]
        before = shown
    total = sum(messages for messages, _ in counts.values())
    assert grown.total() == total


def test_the_busiest_have_the_names() -> None:
    busiest = Busiest[str](2, lambda _: REST)
    counts = {"a": [10], "b": [20], "c": [15]}
    assert busiest.select(counts) == {"b": (20,), "c": (15,), REST: (10,)}


def test_a_name_changes_hands_once_another_is_clearly_busier() -> None:
    busiest = Busiest[str](1, lambda _: REST)
    counts = {"a": [10], "b": [1]}
    assert busiest.select(counts) == {"a": (10,), REST: (1,)}
    counts["b"][0] = 10 * FACTOR
    assert busiest.select(counts) == {"a": (10,), REST: (10 * FACTOR,)}
    counts["b"][0] += 1
    assert busiest.select(counts) == {"b": (0,), REST: (10 * FACTOR + 1,)}
    counts["a"][0] += 5
    counts["b"][0] += 2
    assert busiest.select(counts) == {"b": (2,), REST: (10 * FACTOR + 6,)}
