"""Forecast of disk usage, if messages arrive as in the last day and are deleted as planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mqstore.jobs.expiry.counts import AGES_H, RATE_CLASSES, Count
from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.jobs.expiry.report import DiskForecast, Level
from mqstore.storage.formats import INDEX_ITEM_SIZE, QUEUE_ENTRY_SIZE
from mqstore.storage.retention import PlannedSegment

HOURS_MIN: Final = 7 * 24
HOURS_MAX: Final = 60 * 24
LEVELS: Final = (
    ("diskMaxUsedSpaceRatio", "disk_max_used_space_ratio"),
    ("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_ratio"),
    ("diskSpaceWarningLevelRatio", "disk_space_warning_level_ratio"),
)
_DERIVED: Final = QUEUE_ENTRY_SIZE + INDEX_ITEM_SIZE
"""Bytes that a message with one key, its UNIQ_KEY, takes outside of the log."""
_HOUR_MS: Final = 3_600_000


def growth(ages: Iterable[Count], now_ms: int) -> int:
    """Bytes per hour that the last day brought, or all the time there is of it."""
    messages = size = 0
    oldest_ms = now_ms
    for count in ages:
        oldest_ms = min(oldest_ms, count.oldest_ms or now_ms)
        if count.age < RATE_CLASSES:
            messages += count.messages
            size += count.bytes
    day = AGES_H[RATE_CLASSES - 1]
    hours = min(max((now_ms - oldest_ms) / _HOUR_MS, 1.0), day)
    return round((size + messages * _DERIVED) / hours)


def make(
    facts: ShardFacts, planned: Sequence[PlannedSegment], ages: Sequence[Count], hours: int
) -> DiskForecast | None:
    """Forecast the fullest volume for at least ``hours``; None without a volume."""
    if not facts.disks.volumes:
        return None
    volume = facts.disks.fullest()
    rate = growth(ages, facts.now_ms)
    reserved = facts.config.file_reserved_time
    ahead = min(max(HOURS_MIN, hours, reserved + 48), HOURS_MAX)
    used = tuple(_used(volume.used_bytes, rate, planned, facts.now_ms, reserved, ahead))
    return DiskForecast(
        volume=volume.name,
        path=volume.path,
        total_bytes=volume.total_bytes,
        used_bytes=volume.used_bytes,
        bytes_per_hour=rate,
        used_by_hour=used,
        levels=tuple(
            Level(
                setting=setting,
                percent=(percent := getattr(facts.config, name)),
                reached_in_hours=_reached(used, percent * volume.total_bytes / 100),
            )
            for setting, name in LEVELS
        ),
    )


def _used(
    now_used: int,
    rate: int,
    planned: Sequence[PlannedSegment],
    now_ms: int,
    reserved_hours: int,
    ahead: int,
) -> Iterator[int]:
    for hour in range(ahead + 1):
        moment = now_ms + hour * _HOUR_MS
        gone = sum(
            each.size
            for each in planned
            if each.not_before_ms is not None and each.not_before_ms <= moment
        )
        gone += rate * max(0, hour - reserved_hours)
        yield max(0, now_used + rate * hour - gone)


def _reached(used: Sequence[int], limit: float) -> float | None:
    """In how many hours a size is passed; between two hours in proportion."""
    if used[0] > limit:
        return 0.0
    for hour in range(1, len(used)):
        before, after = used[hour - 1], used[hour]
        if after > limit:
            return round(hour - 1 + (limit - before) / (after - before), 1)
    return None
