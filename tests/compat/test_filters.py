"""Filter expressions and bloom filters beside RocketMQ's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import FilterError
from mqstore.storage.filter.bloom import BloomFilter
from mqstore.storage.filter.expression import Filter, compile_expression
from mqstore.storage.filter.java_values import EvaluationError
from mqstore.storage.layout import StoreFormat
from tests.compat.examples import random_stores
from tests.compat.expressions import Expressions
from tests.compat.referee import Line, Referee
from tests.compat.shapes import SEEDS

pytestmark = pytest.mark.referee

REQUESTS = 1_500
PROPERTIES = 6
"""Messages that each expression is tried on."""


def answer(compiled: Filter, properties: dict[str, str]) -> str:
    try:
        return {True: "true", False: "false", None: "null"}[compiled.evaluate(properties)]
    except EvaluationError:
        return "throws"


def ours(text: str, properties: list[dict[str, str]], store_format: StoreFormat) -> list[str]:
    try:
        compiled = compile_expression(text, store_format)
    except FilterError:
        return ["refused"]
    return [answer(compiled, each) for each in properties]


def without_rest(text: str, store_format: StoreFormat) -> str:
    """RocketMQ's reading of an expression with trailing text, which we refuse."""
    try:
        compile_expression(text, store_format)
    except FilterError as error:
        return text[: (error.column or 1) - 1]
    return text


@random_stores
@given(seed=SEEDS)
def test_expressions_say_what_rocketmq_says(referee: Referee, seed: int) -> None:
    store_format = StoreFormat(referee.format)
    draw = Expressions(seed)
    requests: list[Line] = [
        {"expression": draw.draw(), "properties": [draw.properties() for _ in range(PROPERTIES)]}
        for _ in range(REQUESTS)
    ]
    accepted = matched = 0
    for question, theirs in zip(requests, referee.evaluate(requests), strict=True):
        text, properties = question["expression"], question["properties"]
        found = ours(text, properties, store_format)
        if found == ["refused"] != theirs:
            found = ours(without_rest(text, store_format), properties, store_format)
        assert found == theirs, (text, properties)
        accepted += theirs != ["refused"]
        matched += "true" in theirs
    assert accepted > REQUESTS // 4
    assert matched > REQUESTS // 20


@random_stores
@given(
    f=st.integers(1, 99),
    n=st.integers(1, 500),
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=50),
)
def test_bits_stand_where_rocketmq_has_them(
    referee: Referee, f: int, n: int, texts: list[str]
) -> None:
    usual = {"f": 20, "n": 32, "texts": ["group#topic"]}
    requests: list[Line] = [{"f": f, "n": n, "texts": texts}, usual]
    for question, theirs in zip(requests, referee.bloom(requests), strict=True):
        bloom = BloomFilter.of(question["f"], question["n"])
        assert bloom.bits == theirs["bits"]
        assert [list(bloom.positions(text)) for text in question["texts"]] == theirs["positions"]
