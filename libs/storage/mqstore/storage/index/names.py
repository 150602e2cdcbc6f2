"""Names of index files: the local time of their creation, to the millisecond."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

NAME_DIGITS: Final = 17
"""Digits of an index file's name: year 4, then month, day, hour, minute, second 2 each, millisecond
3."""


def time_name(now_ms: int) -> str:
    """The name of a file that is made now, a Unix time in ms."""
    return _name_of(datetime.fromtimestamp(now_ms / 1000))


def name_after(name: str, count: int = 1) -> str:
    """The name that is later by ``count``; each name between them is valid too."""
    try:
        last = datetime.strptime(name[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(name[14:]))
        return _name_of(last + timedelta(milliseconds=count))
    except (ValueError, OverflowError):
        return str(int(name or 0) + count).zfill(max(len(name), NAME_DIGITS))


def _name_of(moment: datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
