"""deleteWhen: the hours of the day, in local time, in which expired files are removed.

Source: UtilAll.isItTimeToDo of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

MOMENT_MAX_MS: Final = 32_503_680_000_000
"""The year 3000: the latest file time that is taken seriously."""
_HOURS_AHEAD: Final = 49
"""Every hour of the day comes within this time, even when the clock changes."""


def parse(delete_when: str) -> frozenset[int]:
    """Parse hours such as ``04`` or ``04;16``; the setting was checked before."""
    return frozenset(int(hour) for hour in delete_when.split(";"))


def is_time(now_ms: int, hours: frozenset[int]) -> bool:
    """Whether the local hour is one of these."""
    return _local(now_ms).hour in hours


def next_time(from_ms: int, hours: frozenset[int]) -> int:
    """The first moment at or after ``from_ms`` in one of the hours, in ms since the epoch."""
    moment = _local(from_ms)
    for _ in range(_HOURS_AHEAD):
        if moment.hour in hours:
            break
        moment = moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return max(from_ms, round(moment.timestamp() * 1000))


def _local(now_ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(now_ms, 0), MOMENT_MAX_MS) / 1000)
