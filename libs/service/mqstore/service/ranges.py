"""Range requests (RFC 9110, section 14) for one range of bytes."""

from __future__ import annotations

import re
from typing import Final

from mqstore.service import problems
from mqstore.service.problems import Problem

_ONE_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the end after its last; None for the whole content.

    An invalid range counts as the whole, and so do several ranges. Raises Problem (416) for a
    range beyond ``size`` bytes.
    """
    match = None if header is None else _ONE_RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= stop:
        raise Problem(
            problems.RANGE_NOT_SATISFIABLE,
            f"there are {size} bytes, from 0; none of them is in {header}",
            headers={"content-range": f"bytes */{size}"},
        )
    return start, stop
