"""Rows that a filter of Spark excludes are not read; other rows are unchanged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from mqstore.jobs.data_source import narrowed
from mqstore.jobs.read_options import ReadOptions

pytestmark = pytest.mark.slow

ALL = ReadOptions("/store")
OFFSET = ("physical_offset",)
TIME = ("store_time",)
WHEN = datetime(2026, 11, 22, 8, 0, 0, 1500, UTC)
WHEN_MS = int(WHEN.timestamp() * 1000)


@pytest.mark.parametrize(
    ("pushed", "changed"),
    [
        (EqualTo(("topic",), "a"), {"topics": frozenset({"a"})}),
        (In(("topic",), ("a", "b", None)), {"topics": frozenset({"a", "b"})}),
        (EqualTo(OFFSET, 7), {"low": 7, "high": 8}),
        (GreaterThan(OFFSET, 7), {"low": 8}),
        (GreaterThanOrEqual(OFFSET, 7), {"low": 7}),
        (LessThan(OFFSET, 7), {"high": 7}),
        (LessThanOrEqual(OFFSET, 7), {"high": 8}),
        (GreaterThan(TIME, WHEN), {"since_ms": WHEN_MS}),
        (GreaterThanOrEqual(TIME, WHEN), {"since_ms": WHEN_MS}),
        (LessThan(TIME, WHEN), {"until_ms": WHEN_MS + 1}),
        (LessThanOrEqual(TIME, WHEN), {"until_ms": WHEN_MS + 1}),
    ],
)
def test_a_filter_narrows_what_is_read(pushed: Filter, changed: dict[str, Any]) -> None:
    found = narrowed(ALL, pushed)
    assert {name: getattr(found, name) for name in changed} == changed
    assert [name for name in ALL.__slots__ if getattr(found, name) != getattr(ALL, name)] == list(
        changed
    )


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("queue_id",), 1),
        EqualTo(("properties", "topic"), "a"),
        LessThan(("born_time",), WHEN),
        # Other bytes are read as this text too.
        EqualTo(("topic",), "\ufffd"),
        In(("topic",), ("a", "\ufffd")),
    ],
)
def test_a_filter_that_cannot_be_used_changes_nothing(pushed: Filter) -> None:
    assert narrowed(ALL, pushed) == ALL
