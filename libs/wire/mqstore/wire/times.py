"""Points in time of requests: milliseconds since the epoch, or text in RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema

from mqstore.wire.base import INT64_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST_MS: Final = 946_684_800_000
"""First time of a request besides 0, 2000-01-01T00:00:00Z: a smaller number is a year, a date or
seconds, which as milliseconds would select everything."""
_FORMS: Final = (
    "in RFC 3339, as 2026-11-26T12:00:00Z, or in milliseconds since the epoch, as 1795694400000"
)
_FORM: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+ -]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_LEAP_SECOND: Final = re.compile(r":60(?=[.Z+-])", re.IGNORECASE)
_ZONE_WITHOUT_SIGN: Final = re.compile(r" (?=\d\d:\d\d$)")
_AWARE: Final[TypeAdapter[datetime]] = TypeAdapter(
    AwareDatetime, config=ConfigDict(defer_build=True)
)


def parse_time(text: str) -> int:
    """Parse a time in milliseconds since the epoch or in RFC 3339, to milliseconds.

    Milliseconds are 0 or at least ``EARLIEST_MS``. In RFC 3339 a time before the epoch is 0, and a
    leap second is the second before it. A space counts as the + of a zone, as in a URL that does
    not escape it. Raises ValueError.
    """
    if text.isascii() and text.isdigit():
        return checked_ms(int(text))
    at = _ZONE_WITHOUT_SIGN.sub("+", text)
    try:
        if not _FORM.fullmatch(text):
            raise ValueError(text)
        found = _AWARE.validate_python(_LEAP_SECOND.sub(":59", at))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time; write it {_FORMS}") from None
    return max(0, (found - _EPOCH) // timedelta(milliseconds=1))


def format_time(at_ms: int) -> str:
    """Format a time in RFC 3339, in seconds of UTC."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def checked_ms(at_ms: int) -> int:
    """Return milliseconds since the epoch. Raises ValueError below ``EARLIEST_MS``, except 0."""
    if 0 < at_ms < EARLIEST_MS:
        raise ValueError(
            f"{at_ms} as a time is {format_time(at_ms)}: milliseconds are 0 or from {EARLIEST_MS}"
            f" on; write the time {_FORMS}"
        )
    return at_ms


def _in_milliseconds(given: object) -> object:
    if isinstance(given, str):
        return parse_time(given)
    return checked_ms(given) if type(given) is int else given


Time = Annotated[
    int,
    Field(ge=0, le=INT64_MAX, strict=True),
    BeforeValidator(_in_milliseconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": 0},
                {"type": "integer", "minimum": EARLIEST_MS, "maximum": INT64_MAX},
                {"type": "string", "format": "date-time"},
            ]
        }
    ),
]
"""A point in time of a request: milliseconds since the epoch, at which text in RFC 3339 arrives."""
