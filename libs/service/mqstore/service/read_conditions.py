"""The condition of a read: answer it once the log is readable up to an offset.

``X-Mqstore-At-Least: 0:1073745920,1:4096`` names offsets by shard. Each shard that answers a
request, or a part of it, looks at its own. A client that has stored a message reads it so from any
copy of the shard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mqstore.service.problems import BAD_PARAMETER, Problem

AT_LEAST: Final = b"x-mqstore-at-least"
_OFFSETS: Final = re.compile(rb"[0-9]{1,6}:[0-9]{1,19}(, ?[0-9]{1,6}:[0-9]{1,19}){0,999}")

Headers = Iterable[tuple[bytes, bytes]]


def has_condition(headers: Headers) -> bool:
    """Return whether a request has a condition."""
    return any(name == AT_LEAST for name, _ in headers)


def least_offset(headers: Headers, shard: int) -> int | None:
    """Return the offset that a request names for a shard, the greatest of several; None without
    one. Raises Problem (400)."""
    found = None
    for name, value in headers:
        if name != AT_LEAST:
            continue
        if not _OFFSETS.fullmatch(value):
            raise Problem(
                BAD_PARAMETER,
                "X-Mqstore-At-Least: it should be SHARD:OFFSET, several joined by commas, as "
                "0:1073745920",
            )
        for each in value.split(b","):
            number, _, offset = each.strip().partition(b":")
            if int(number) == shard:
                found = max(found or 0, int(offset))
    return found
