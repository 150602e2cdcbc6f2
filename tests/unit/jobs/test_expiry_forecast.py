"""How full a disk gets, hour by hour."""

from __future__ import annotations

import pytest

from mqstore.jobs.expiry import forecast
from mqstore.jobs.expiry.counts import AGES_H, Count
from mqstore.jobs.expiry.report import DiskForecast
from mqstore.storage.retention.disk import Disks
from tests.unit.jobs.expiry_examples import HOUR_MS, NOW_MS, SEGMENT, disks, facts

DERIVED = 40
"""Bytes of queue entry and index item."""


def hourly(size: int, hours: int = 100) -> list[Count]:
    """Counts of one message of so many bytes in each of the last hours."""
    counts = []
    for age, until in enumerate((*AGES_H, 10**6)):
        since = ((0, *AGES_H))[age]
        number = max(0, min(until, hours) - since)
        oldest_ms = NOW_MS - min(until, hours) * HOUR_MS
        if number:
            counts.append(Count(number, number * (size - DERIVED), oldest_ms, age=age))
    return counts


def made(percent: int, per_hour: int, ages_h: tuple[int, ...] = ()) -> DiskForecast:
    known = facts(ages_h, disks=disks(percent))
    planned = known.planned([], known.config.file_reserved_time)
    found = forecast.make(known, planned.segments, hourly(per_hour), 24)
    assert found is not None
    return found


@pytest.mark.parametrize("hours", [1, 5, 24, 100])
def test_the_rate_is_that_of_the_last_day_or_of_all_there_is(hours: int) -> None:
    assert forecast.growth(hourly(5000, hours), NOW_MS) == 5000


def test_nothing_stored_lately_is_no_growth() -> None:
    assert forecast.growth([Count(5, 500, NOW_MS - 50 * HOUR_MS, age=6)], NOW_MS) == 0
    assert forecast.growth([], NOW_MS) == 0


def test_levels_are_passed_when_what_comes_fills_the_disk() -> None:
    found = made(70, SEGMENT // 2)
    assert [level.percent for level in found.levels] == [75, 85, 90]
    assert [level.reached_in_hours for level in found.levels] == [10.0, 30.0, 40.0]


def test_levels_that_delete_what_is_needed_or_refuse_messages_are_dangers() -> None:
    assert [level.percent for level in made(70, SEGMENT // 2).dangers] == [85, 90]
    assert [level.percent for level in made(87, 0).dangers] == [85]
    assert made(80, 0).dangers == ()  # above 75 % retention deletes what has expired


def test_a_level_that_is_passed_already_is_passed_now() -> None:
    assert [level.reached_in_hours for level in made(87, 0).levels] == [0, 0, None]


def test_what_goes_by_plan_makes_room() -> None:
    found = made(50, 0, ages_h=(71, 70, 10, 0))
    assert found.used_by_hour[0] == 50 * SEGMENT
    assert found.used_by_hour[1] == 49 * SEGMENT
    assert found.used_by_hour[2] == 48 * SEGMENT
    assert found.used_by_hour[-1] == 47 * SEGMENT  # the newest segment stays


def test_what_comes_goes_again_once_its_time_is_over() -> None:
    found = made(50, 100)
    assert found.used_by_hour[72] == found.used_by_hour[-1] == 50 * SEGMENT + 72 * 100


def test_without_a_measured_disk_there_is_no_forecast() -> None:
    assert forecast.make(facts(disks=Disks()), [], [], 24) is None
