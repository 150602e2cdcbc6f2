from __future__ import annotations

from dataclasses import replace

from mqstore.storage.filter.bitmaps import FilterBitmaps
from mqstore.storage.filter.bloom import BloomFilter, has
from mqstore.storage.layout import StoreFormat
from mqstore.storage.tables.consumer_filters import FilterData

BLOOM = BloomFilter.of(20, 32)


def subscription(group: str, expression: str, *, topic: str = "T", born_ms: int = 5) -> FilterData:
    positions = BLOOM.positions(f"{group}#{topic}")
    return FilterData(topic, group, expression, "SQL92", 1, born_ms, 0, BLOOM.bits, positions)


def bitmaps(*subscriptions: FilterData) -> FilterBitmaps:
    return FilterBitmaps(BLOOM, StoreFormat.V4_9, subscriptions)


def wants(bitmap: bytes, group: str, topic: str = "T") -> bool:
    return has(bitmap, BLOOM.positions(f"{group}#{topic}"))


def test_those_whose_expression_is_true_have_their_bits() -> None:
    made = bitmaps(subscription("above", "a > 5"), subscription("below", "a < 5"))
    found = made.bitmap("T", {"a": "9"})
    assert len(found) * 8 == BLOOM.bits
    assert (wants(found, "above"), wants(found, "below")) == (True, False)
    assert made.bitmap("T", {}) == bytes(len(found))


def test_a_topic_without_subscriptions_has_no_bitmap() -> None:
    made = bitmaps(subscription("g", "a > 5"))
    assert (made.has("T"), made.has("U")) == (True, False)
    assert made.bitmap("U", {"a": "9"}) == b""
    made.replace("T", [])
    assert not made.has("T")


def test_one_that_died_goes_on_and_one_born_later_may_be_left_out() -> None:
    dead = replace(subscription("dead", "a > 5"), dead_ms=9)
    made = bitmaps(dead, subscription("late", "a > 5", born_ms=7))
    assert wants(made.bitmap("T", {"a": "9"}), "dead")
    assert wants(made.bitmap("T", {"a": "9"}), "late")
    of_old = made.bitmap("T", {"a": "9"}, 7)
    assert (wants(of_old, "dead"), wants(of_old, "late")) == (True, False)


def test_what_cannot_be_evaluated_has_no_bits() -> None:
    made = bitmaps(subscription("g", "a > 5"))
    assert not any(made.bitmap("T", {"a": "no number"}))


def test_expressions_that_are_refused_and_bits_of_another_filter_are_left_out() -> None:
    of_another = replace(subscription("g", "a > 5"), bits=BLOOM.bits + 8)
    out_of_range = replace(subscription("g", "a > 5"), positions=(0, 1, BLOOM.bits))
    for odd in (of_another, out_of_range, subscription("g", "a >")):
        assert not bitmaps(odd).has("T")
