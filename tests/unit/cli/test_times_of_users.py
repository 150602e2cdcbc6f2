"""Times and durations as users write them."""

from __future__ import annotations

import pytest

from mqstore.cli.times import duration, parse_duration, parse_when, show_time

NOW = 1_795_694_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("2h ago", NOW - 7_200_000),
        ("1h30m ago", NOW - 5_400_000),
        ("1d 2h ago", NOW - 93_600_000),
        ("99999w ago", 0),
        ("2026-11-26T12:00:00Z", 1_795_694_400_000),
        ("1795694400000", 1_795_694_400_000),
        ("0", 0),
    ],
)
def test_a_time_is_absolute_or_relative_to_now(text: str, expected: int) -> None:
    assert parse_when(text, now_ms=NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "ago", "2 ago", "2026", "2h", "x ago"])
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|no duration|as a time"):
        parse_when(text, now_ms=NOW)


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
