"""Numbers, sizes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "–"  # noqa: RUF001
"""Text of a table for no value."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_HOUR: Final = 3_600_000
_DAY_H: Final = 24
_YEAR_MS: Final = 366 * _DAY_H * _HOUR
_LONG: Final = "a long time"


def count(number: int) -> str:
    """A number with a comma between thousands."""
    return f"{number:,}"


def size(number: float) -> str:
    """Format bytes with three digits and a binary unit."""
    for unit in _UNITS:
        if abs(number) < 1000 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or abs(number) >= 100 else f"{number:.3g} {unit}"


def hours(number: float) -> str:
    """``45 min``, ``16 h``, ``3 d``, ``3 d 4 h``."""
    if number < 1:
        return f"{round(number * 60)} min"
    days, rest = divmod(round(number), _DAY_H)
    if days >= 10 or (days and not rest):
        return f"{days} d"
    return f"{days} d {rest} h" if days else f"{rest} h"


def span(milliseconds: int) -> str:
    """Format a duration; a negative one as zero, one of over 100 years as a long one."""
    if abs(milliseconds) > 100 * _YEAR_MS:
        return _LONG
    return hours(max(0, milliseconds) / _HOUR)


def moment(ms: int | None) -> str:
    """A time in ms since 1970 as date and minute in UTC; its number if no date can show it."""
    if ms is None:
        return NOTHING
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
