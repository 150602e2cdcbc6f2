"""Times and durations as users write and read them, in one place for all commands."""

from __future__ import annotations

import re
import time
from typing import Final

_ABSOLUTE: Final = "in RFC 3339, as 2026-11-26T12:00:00Z, or in milliseconds since the epoch"
TIME_HELP: Final = f"as `2h ago`, `now`, {_ABSOLUTE}"
FUTURE_HELP: Final = f"as `in 3h`, {_ABSOLUTE}"
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART: Final = r"(\d{1,9})\s*(ms|[smhdw])"
_DURATION: Final = re.compile(rf"(?:{_PART}\s*)+", re.ASCII)
_AGO: Final = re.compile(r"(.+?)\s+ago", re.ASCII)
_AHEAD: Final = re.compile(r"in\s+(.+)", re.ASCII)


def parse_when(text: str, *, now_ms: int | None = None) -> int:
    """Parse a time, absolute or relative to now, to milliseconds since the epoch.

    Raises ValueError for text that is no time.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text.strip() == "now":
        return now_ms
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return max(0, now_ms - parse_duration(ago[1]))
    if (ahead := _AHEAD.fullmatch(text.strip())) is not None:
        return now_ms + parse_duration(ahead[1])
    from mqstore.wire.times import parse_time  # slow to import, and mostly not needed

    try:
        return parse_time(text)
    except ValueError as error:
        raise ValueError(f"{error}; or relative to now, as '2h ago' or 'in 3h'") from None


def parse_future(text: str, *, now_ms: int | None = None) -> int:
    """Parse a time to come, as ``parse_when``. Raises ValueError for one relative to now that has
    passed, too; an absolute one may have passed meanwhile."""
    if _AGO.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} has passed; give a time to come, as 'in 3h'")
    return parse_when(text, now_ms=now_ms)


def parse_duration(text: str) -> int:
    """Parse a duration such as ``1h30m`` or ``500ms`` to milliseconds. Raises ValueError."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(
            f"{text[:40]!r} is no duration; write numbers with units ms, s, m, h, d or w, as 1h30m"
        )
    return sum(int(count) * _UNIT_MS[unit] for count, unit in re.findall(_PART, text))


def duration(milliseconds: int | None) -> str:
    """A duration in its two largest units, as ``2h 5m``; ``?`` if it is unknown (None)."""
    if milliseconds is None:
        return "?"
    left = milliseconds // 1000
    if left == 0:
        return f"{milliseconds}ms"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def show_time(milliseconds: int | None) -> str:
    """A time in RFC 3339 with milliseconds of UTC; ``-`` for none."""
    if milliseconds is None or milliseconds < 0:
        return "-"
    try:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{text}.{milliseconds % 1000:03d}Z"
