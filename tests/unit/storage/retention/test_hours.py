from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.retention import hours

HOUR_MS = 3_600_000
MIDNIGHT_MS = 1_800_057_600_000
"""2027-01-16 00:00 UTC."""


def test_hours_of_the_setting_are_those_of_the_day() -> None:
    assert hours.parse("04") == {4}
    assert hours.parse("4;16;23") == {4, 16, 23}


def test_the_whole_hour_is_the_time_and_the_next_one_is_not() -> None:
    assert hours.is_time(MIDNIGHT_MS + 4 * HOUR_MS, frozenset({4}))
    assert hours.is_time(MIDNIGHT_MS + 5 * HOUR_MS - 1, frozenset({4}))
    assert not hours.is_time(MIDNIGHT_MS + 5 * HOUR_MS, frozenset({4}))


def test_the_next_time_is_now_within_the_hour_and_else_its_begin() -> None:
    now = MIDNIGHT_MS + 4 * HOUR_MS + 7
    assert hours.next_time(now, frozenset({4})) == now
    assert hours.next_time(now, frozenset({6})) == MIDNIGHT_MS + 6 * HOUR_MS
    assert hours.next_time(now, frozenset({3})) == MIDNIGHT_MS + 27 * HOUR_MS


def test_hours_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "<+0530>-05:30")
    time.tzset()
    assert hours.is_time(MIDNIGHT_MS, frozenset({5}))
    assert hours.next_time(MIDNIGHT_MS, frozenset({6})) == MIDNIGHT_MS + HOUR_MS // 2


@given(now=st.integers(-(2**63), 2**63), wanted=st.frozensets(st.integers(0, 23), min_size=1))
def test_the_next_time_is_in_the_hours_within_a_day(now: int, wanted: frozenset[int]) -> None:
    found = hours.next_time(now, wanted)
    if 0 <= now < hours.MOMENT_MAX_MS - 24 * HOUR_MS:
        assert hours.is_time(found, wanted)
        assert now <= found <= now + 24 * HOUR_MS
