"""Counting by bound and by topic: what adds up, and what is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.metrics import COUNTED_MAX, OTHER_TOPICS, Histogram, Traffic

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
    traffic.count("t98", "normal", 8, 80)
    traffic.count("t99", "normal", 9, 90)
    assert traffic.busiest() == {
        ("t98", "normal"): (9, 90),
        ("t99", "normal"): (10, 100),
        (OTHER_TOPICS, "normal"): (98, 980),
        (OTHER_TOPICS, "delay"): (1, 10),
    }


def test_labels_that_clients_choose_are_bounded() -> None:
    traffic = Traffic(2, OTHER_TOPICS)
    for number in range(COUNTED_MAX + 10):
        traffic.count("t", f"g{number}", 1, 10)
    assert len(traffic.counts) == COUNTED_MAX + 1
    assert traffic.of("t", "another") is traffic.counts[OTHER_TOPICS, OTHER_TOPICS]
    found = traffic.busiest()
    assert len(found) == 3
    assert found[OTHER_TOPICS, OTHER_TOPICS] == (COUNTED_MAX + 8, 10 * (COUNTED_MAX + 8))


def test_no_topic_is_named_where_the_setting_is_zero() -> None:
    traffic = Traffic(0)
    traffic.count("t", "normal", 3, 30)
    assert traffic.busiest() == {(OTHER_TOPICS, "normal"): (3, 30)}
