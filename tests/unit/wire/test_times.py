"""Times of requests, in milliseconds and in RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from mqstore.wire.base import INT64_MAX
from mqstore.wire.times import EARLIEST_MS, Time, format_time, parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON_MS = 1_795_780_800_000
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(min_value=datetime(1971, 1, 1), timezones=ZONES)


@given(at=TIMES)
def test_a_time_of_any_zone_is_its_milliseconds(at: datetime) -> None:
    text = at.isoformat()
    assert parse_time(text) == (at - EPOCH) // timedelta(milliseconds=1)
    assert parse_time(text.lower().replace("+", " ")) == parse_time(text)


@given(at_ms=st.integers(0, 253_402_300_799_999))
def test_a_formatted_time_is_that_second(at_ms: int) -> None:
    assert parse_time(format_time(at_ms)) == at_ms // 1000 * 1000


@given(at_ms=st.just(0) | st.integers(EARLIEST_MS, INT64_MAX))
def test_milliseconds_are_a_time_as_number_and_as_text(at_ms: int) -> None:
    assert parse_time(str(at_ms)) == at_ms
    assert TypeAdapter(Time).validate_python(at_ms) == at_ms


@given(number=st.integers(1, EARLIEST_MS - 1) | st.sampled_from([2026, 20261126, 1_795_694_400]))
def test_a_year_a_date_and_seconds_are_no_milliseconds(number: int) -> None:
    for given_time in (number, str(number)):
        with pytest.raises(ValidationError, match=r"2026-11-26T12:00:00Z.*1795694400000"):
            TypeAdapter(Time).validate_python(given_time)
    with pytest.raises(ValueError, match=f"{number} as a time is 1"):
        parse_time(str(number))


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-11-27T12:00:00Z", NOON_MS),
        ("2026-11-27T13:00:00.5+01:00", NOON_MS + 500),
        ("2026-11-27T12:00:00.123456789z", NOON_MS + 123),
        ("1066-10-14T09:00:00Z", 0),
        ("2016-12-31T23:59:60Z", 1_483_228_799_000),
    ],
)
def test_fractions_leap_seconds_and_the_past_have_a_millisecond(text: str, at_ms: int) -> None:
    assert parse_time(text) == at_ms


@pytest.mark.parametrize(
    "text",
    ["", "-1", "now", "2026-11-27", "2026-11-27T12:00:00", "2026-02-30T12:00:00Z", "²", "1e3"],
)
def test_other_text_is_refused_with_how_to_write_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="write it in RFC 3339, as 2026-11-26T12:00:00Z"):
        parse_time(text)


@pytest.mark.parametrize("wrong", [True, 1.0, -1, INT64_MAX + 1, str(INT64_MAX + 1), None])
def test_a_request_takes_no_other_value(wrong: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Time).validate_python(wrong)
