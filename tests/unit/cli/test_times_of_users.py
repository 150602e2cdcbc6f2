"""Times and durations as users write them."""

from __future__ import annotations

import pytest

from mqstore.cli.times import duration, parse_duration, parse_future, parse_when, show_time

NOW = 1_795_694_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("2h ago", NOW - 7_200_000),
        ("1h30m ago", NOW - 5_400_000),
        ("1d 2h ago", NOW - 93_600_000),
        ("99999w ago", 0),
        ("in 3h", NOW + 10_800_000),
        ("in 1d 30m", NOW + 88_200_000),
        ("2026-11-26T12:00:00Z", 1_795_694_400_000),
        ("1795694400000", 1_795_694_400_000),
        ("0", 0),
    ],
)
def test_a_time_is_absolute_or_relative_to_now(text: str, expected: int) -> None:
    assert parse_when(text, now_ms=NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "ago", "2 ago", "2026", "2h", "x ago", "in", "in x"]
)
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|no duration|as a time"):
        parse_when(text, now_ms=NOW)


def test_a_time_to_come_is_not_one_relative_to_now_that_has_passed() -> None:
    assert parse_future("in 3h", now_ms=NOW) == NOW + 10_800_000
    assert parse_future("2026-11-26T12:00:00Z", now_ms=NOW + 5) == NOW
    with pytest.raises(ValueError, match="'2h ago' has passed; give a time to come, as 'in 3h'"):
        parse_future("2h ago", now_ms=NOW)


@pytest.mark.parametrize(("text", "expected"), [("90s", 90_000), ("1h30m", 5_400_000), ("5ms", 5)])
def test_a_duration_has_units(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "5", "h", "-1s", "1y", "1 s 2"])
def test_a_duration_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


def test_durations_and_times_are_printed_for_readers() -> None:
    assert [duration(each) for each in (None, 5, 61_000, 90_061_000)] == [
        "?",
        "5ms",
        "1m 1s",
        "1d 1h",
    ]
    assert show_time(NOW + 7) == "2026-11-26T12:00:00.007Z"
    assert show_time(None) == show_time(-1) == "-"
