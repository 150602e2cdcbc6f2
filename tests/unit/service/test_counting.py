"""Counting by bound and by topic: what adds up, and what is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.metrics import OTHER_TOPICS, Histogram, Traffic

BOUNDS = (1.0, 2.0, 5.0)


@given(st.lists(st.floats(0, 10), max_size=20), st.lists(st.floats(0, 10), max_size=20))
def test_buckets_are_cumulative_and_histograms_add_up(
    first: list[float], second: list[float]
) -> None:
    whole, part = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in first:
        whole.observe(value)
    for value in second:
        part.observe(value)
    whole.add(part)
    values = first + second
    expected = [(f"{bound:g}", sum(v <= bound for v in values)) for bound in BOUNDS]
    assert whole.buckets() == [*expected, ("+Inf", len(values))]
    assert whole.count == len(values)


def test_some_buckets_are_given_in_another_unit() -> None:
    seconds = Histogram(BOUNDS)
    for value in (0.5, 1.5, 9):
        seconds.observe(value)
    assert seconds.buckets((2.0,), 1000) == [("2000", 2), ("+Inf", 3)]


def test_topics_beyond_the_most_are_added_up() -> None:
    traffic = Traffic(topics_max=2)
    for number in range(100):
        traffic.count(f"t{number}", "normal", 1, 10)
    traffic.count("t0", "delay", 1, 10)
    traffic.count("t99", "normal", 1, 10)
    assert traffic.counts == {
        ("t0", "normal"): [1, 10],
        ("t1", "normal"): [1, 10],
        (OTHER_TOPICS, "normal"): [99, 990],
        ("t0", "delay"): [1, 10],
    }
