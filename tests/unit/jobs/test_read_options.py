"""Options are checked before anything is read, and no secret gets among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.jobs.columns import CORRUPT, MESSAGES, chosen, ddl
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.read_options import OFFSET_MAX, ReadOptions, time_ms


def test_options_in_any_case_become_what_is_read() -> None:
    options = ReadOptions.of(
        {
            "path": "/store",
            "Columns": "topic, keys",
            "topic": "a,b",
            "since": "1000",
            "until": "1970-01-01T00:00:02Z",
            "FROMOFFSET": "5",
            "tooffset": "9",
            "partitionbytes": "2000000",
            "pushDown": "True",
        }
    )
    assert options == ReadOptions(
        "/store",
        columns=("topic", "keys"),
        topics=frozenset({"a", "b"}),
        since_ms=1000,
        until_ms=2000,
        low=5,
        high=9,
        partition_bytes=2_000_000,
        pushdown=True,
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing to read"),
        ({"path": "/s", "colums": "a"}, "no option 'colums'"),
        ({"path": "/s", "token": "secret"}, "tokenFile"),
        ({"path": "http://u:secret@h"}, "tokenFile"),
        ({"path": "/s", "table": "x"}, "table 'x'"),
        ({"path": "/s", "fromOffset": "-1"}, "fromOffset"),
        ({"path": "/s", "partitionBytes": "1000"}, "at least"),
        ({"path": "/s", "pushdown": "yes"}, "neither true nor false"),
        ({"path": "/s", "since": "yesterday"}, "yesterday"),
        ({"path": "/s", "since": "2026-11-22T08:00:00"}, "zone"),
    ],
)
def test_what_cannot_be_is_refused_with_why(given: dict[str, str], why: str) -> None:
    with pytest.raises(WrongUsage, match=why) as caught:
        ReadOptions.of(given)
    assert "secret" not in str(caught.value)


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-23, 23))
def test_a_time_means_the_same_in_every_zone(when: datetime, hours: int) -> None:
    zoned = when.replace(tzinfo=timezone(timedelta(hours=hours)))
    expected = (zoned - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    assert time_ms(zoned, 0) == time_ms(zoned.isoformat(), 0) == time_ms(str(expected), 0)


def test_without_a_time_there_is_no_bound() -> None:
    assert time_ms(None, OFFSET_MAX) == OFFSET_MAX


def test_filters_only_narrow() -> None:
    options = ReadOptions("/s", topics=frozenset({"a", "b"}), low=10, high=20, since_ms=5)
    narrowed = options.of_topics(["b", "c"]).within(low=5, high=15, since_ms=7, until_ms=9)
    assert narrowed.topics == frozenset({"b"})
    assert (narrowed.low, narrowed.high) == (10, 15)
    assert (narrowed.since_ms, narrowed.until_ms) == (7, 9)


def test_bodies_and_properties_come_only_by_name() -> None:
    assert set(MESSAGES) - set(chosen("messages", None)) == {"properties", "body"}
    assert chosen("messages", ["body", "topic", "body"]) == {"body": "binary", "topic": "string"}
    assert ddl(chosen("corrupt", ["size"])) == "size bigint"
    assert set(chosen("corrupt", None)) == set(CORRUPT)


def test_no_columns_at_all_are_refused() -> None:
    with pytest.raises(WrongUsage, match="no column is named; there are physical_offset"):
        chosen("messages", ReadOptions.of({"path": "x", "columns": " , "}).columns)


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(WrongUsage, match="no column 'colour'; there are physical_offset"):
        chosen("messages", ["colour"])
