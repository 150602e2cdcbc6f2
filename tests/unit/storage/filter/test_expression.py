"""SQL92 expressions; tests/compat/test_filters.py evaluates the same ones in RocketMQ."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import FilterError
from mqstore.storage.filter.expression import (
    DEPTH_MAX,
    EXPRESSION_LENGTH_MAX,
    FilterCache,
    compile_expression,
)
from mqstore.storage.filter.java_values import EvaluationError
from mqstore.storage.layout import StoreFormat

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
THROWS = "throws"


def said(text: str, store_format: StoreFormat = V5, **properties: str) -> object:
    try:
        return compile_expression(text, store_format).evaluate(properties)
    except EvaluationError:
        return THROWS


def refusal(text: str, store_format: StoreFormat = V5) -> FilterError:
    with pytest.raises(FilterError) as caught:
        compile_expression(text, store_format)
    return caught.value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a = 5", True),
        ("a = '5'", True),
        ("a <> 6", True),
        ("a > 4 AND a < 6", True),
        ("a >= 5.0 and a <= 5e0", True),
        ("a between 1 and 5", True),
        ("a NOT BETWEEN 1 AND 5", False),
        ("a in ('4', '5')", True),
        ("a NOT IN ('4', '5')", False),
        ("a > b", False),
        ("-5 < a", True),
        ("a = + 5", True),
        ("TRUE", True),
        ("NOT FALSE", True),
        ("(a = 5) = TRUE", True),
        ("b = 'it''s'", False),
        ("a = 5 /* five */ AND --really\n b = '7'", True),
    ],
)
def test_an_expression_says_what_sql_says(text: str, answer: bool) -> None:
    assert said(text, a="5", b="7") is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("x = 1", None),
        ("1 = x", False),
        ("x = y", True),
        ("NOT x = 1", None),
        ("x > 1", None),
        ("x in ('a')", None),
        ("x not in ('a')", None),
        ("x IS NULL", True),
        ("x IS NOT NULL", False),
        ("x", None),
        ("a", False),
        ("x = 1 OR a = '5'", True),
        ("x = 1 OR a = '6'", None),
        ("x = 1 AND a = '6'", False),
        ("x = 1 AND a = '5'", None),
        ("x contains 'a'", False),
        ("x not contains 'a'", False),
        ("NULL", None),
    ],
)
def test_what_is_missing_makes_it_unknown_as_in_rocketmq(text: str, answer: bool | None) -> None:
    assert said(text, a="5") is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a = 5", THROWS),
        ("a > 1", THROWS),
        ("a > b", THROWS),
        ("TRUE = a", THROWS),
        ("a = TRUE", False),
        ("FALSE OR a = 5 OR TRUE", THROWS),
        ("TRUE OR a = 5", True),
        ("FALSE AND a = 5", False),
    ],
)
def test_what_rocketmq_throws_at_matches_nothing(text: str, answer: object) -> None:
    assert said(text, a="five", b="6") == answer
    if answer == THROWS:
        assert not compile_expression(text, V5).matches({"a": "five", "b": "6"})


@pytest.mark.parametrize(
    ("text", "value", "answer"),
    [
        ("a = 2147483647", "2147483648", THROWS),
        ("a = 2147483648", "2147483648", True),
        ("a < 2147483648", "-9223372036854775808", True),
        ("a < 2147483648", "9223372036854775808", THROWS),
        ("a = 5.5", " 5.5d ", True),
        ("a = 5.5", "0x1.6p2", True),
        ("a > 5.5", "NaN", True),
        ("a = 5", "5.0", THROWS),
        ("a = 5", "+05", True),
        ("a = 5", "5_0", THROWS),
        ("a = 5", "", THROWS),
        ("a > 1.5", "1e999", True),
        ("a < -0.1", "-0x1p99999", True),
    ],
)
def test_texts_become_numbers_as_java_reads_them(text: str, value: str, answer: object) -> None:
    assert said(text, a=value) == answer


def test_text_operators_are_of_5_x() -> None:
    for text in ("a CONTAINS 'bc'", "a startswith 'ab'", "a EndsWith 'cd'"):
        assert said(text, a="abcd") is True
        assert said(text.replace("a ", "a NOT ", 1), a="abcd") is False
        assert "not expected" in str(refusal(text, V4))
    assert said("a contains ''", a="abcd") is False
    assert said("contains = 'x'", V4, contains="x") is True
    assert refusal("contains = 'x'", V5).column == 1


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("a =", 4),
        ("a = 'x", 5),
        ("a = 1 b", 7),
        ("a = 1 AND b > 'x'", 15),
        ("a = 1 AND 7", 11),
        ("NULL = a", 1),
        ("TRUE = 5", 8),
        ("a > TRUE", 5),
        ("5 IN ('a')", 1),
        ("a IN ()", 7),
        ("a BETWEEN 5 AND 1", 1),
        ("a BETWEEN 1 AND NULL", 1),
        ("a = 9223372036854775808", 5),
        ("a = 0.0", 5),
        ("a = 1e999", 5),
        ("a.b = 1", 2),
        ("a == 1", 4),
        ("(a = 1", 7),
    ],
)
def test_a_refusal_points_at_the_column(text: str, column: int) -> None:
    error = refusal(text)
    assert error.column == column
    assert f"column {column}:" in str(error)


def test_hostile_expressions_are_bounded() -> None:
    assert "characters" in str(refusal("a" * (EXPRESSION_LENGTH_MAX + 1)))
    assert "stand in each other" in str(refusal("NOT " * (DEPTH_MAX + 1) + "a = 1"))
    assert "stand in each other" in str(refusal("a" + " = b" * (DEPTH_MAX + 1)))
    half = EXPRESSION_LENGTH_MAX // 2 - 1
    assert said("(" * half + "a" + ")" * half) is None
    assert refusal("(" * EXPRESSION_LENGTH_MAX).column == EXPRESSION_LENGTH_MAX + 1
    assert said(" OR ".join(["a=1"] * 500), a="1") is True
    for text in ("/*" + "*" * 4_000, "'" * 4_001, "-" * 4_000, "1" * 4_000 + " = a"):
        refusal(text)


@given(st.text(max_size=60), st.dictionaries(st.sampled_from("ab"), st.text(max_size=40)))
def test_any_text_compiles_or_is_refused_and_never_fails(
    text: str, properties: dict[str, str]
) -> None:
    try:
        compiled = compile_expression(text, V5)
    except FilterError as error:
        assert error.column in range(1, len(text) + 2)
        return
    assert compiled.matches(properties) in (True, False)


@given(st.text(max_size=400), st.sampled_from(["a = 5", "a = 5000000000", "a > 5.5", "a > b"]))
def test_any_property_is_compared_or_matches_nothing(value: str, text: str) -> None:
    assert compile_expression(text, V5).matches({"a": value, "b": value}) in (True, False)


def test_compiling_a_chain_takes_as_many_steps_as_it_has_parts() -> None:
    def calls(parts: int) -> int:
        counted = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        text = " OR ".join([f"chain{parts} = 1"] * parts)
        sys.setprofile(count)
        try:
            compile_expression(text, V5)
        finally:
            sys.setprofile(None)
        return counted

    compile_expression("a = 1", V5)  # makes the parser
    assert calls(160) < 2.2 * calls(80)


def test_parts_of_a_chain_are_its_own() -> None:
    assert said("(a = 1 OR b = 1) OR c = 1", c="1") is True
    assert said("NOT (a = 1 AND b = 1) AND c = 1", a="2", c="1") is True
    assert said("a = 1 AND b = 1 OR c = 1 AND d = 1 OR e = 1", e="1") is True
    assert said("a BETWEEN 1 AND 3 AND b = 1 AND c = 1", a="2", b="1", c="2") is False


def test_compiled_expressions_are_kept_within_a_bound_on_their_memory() -> None:
    cache = FilterCache(4 * compile_expression("a = 1", V5).size)
    texts = [f"a = {number}" for number in range(6)]
    for text in texts[:4]:
        cache.add(compile_expression(text, V5), V5)
    assert cache.get(texts[0], V5) is not None  # used last
    for text in texts[4:]:
        cache.add(compile_expression(text, V5), V5)
    kept = [text for text in texts if cache.get(text, V5) is not None]
    assert kept == [texts[0], *texts[3:]]
    assert cache.get(texts[0], V4) is None
    cache.add(compile_expression("a = 1" + " " * 4_000, V5), V5)
    assert cache.size == 0


@pytest.mark.slow
def test_the_size_of_a_compiled_expression_is_not_underestimated() -> None:
    for unit in ("a=1", "a>b", "NOT a", "a IN ('x')", "a IS NULL", "-a<1"):
        text = " OR ".join([unit] * 100)[:EXPRESSION_LENGTH_MAX].rpartition(" OR ")[0]
        tracemalloc.start()
        try:
            compiled = compile_expression(text, V5)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < compiled.size
        finally:
            tracemalloc.stop()


def test_one_expression_is_compiled_once() -> None:
    assert compile_expression("a = 1", V5) is compile_expression("a = 1", V5)
