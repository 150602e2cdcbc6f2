"""Segments cut into ranges at boundaries that count, each for one task.

A body may hold a forged record, so a boundary is never found by looking for one in the bytes: it
comes from a queue entry whose record names the same entry, or it is where a segment begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

from mqstore.jobs.log.source import LogRange, LogReader, LogSegment

RANGE_MIN: Final = 1 << 20
"""Bytes of the smallest range that an option may set."""
RANGE_SIZE: Final = 128 << 20
"""Default bytes of a range: few large ranges are faster than many small ones."""

Near = Callable[[int, int], int | None]
"""Some known boundary from the first offset to before the second one, or None."""


def split(start: int, end: int, size: int, near: Near) -> list[tuple[int, int]]:
    """Cut ``start`` to ``end`` into pieces of about ``size`` bytes, at boundaries ``near`` knows.

    A piece is longer where no boundary is known, and the last one up to half as long again.
    """
    cuts = [start]
    target = start + size
    while target + size // 2 < end:
        found = near(target, min(target + size, end))
        if found is not None:
            cuts.append(found)
            target = found
        target += size
    return list(pairwise([*cuts, end]))


def plan(
    reader: LogReader, segments: Iterable[LogSegment], size: int, low: int, high: int
) -> Iterator[LogRange]:
    """The ranges with all records that begin from physical offset ``low`` to before ``high``."""
    for segment in segments:
        if segment.end <= low or segment.start >= high:
            continue

        def near(offset: int, stop: int, segment: LogSegment = segment) -> int | None:
            """Return the first record of the segment at or after an offset."""
            return reader.near(segment, offset, stop)

        for start, stop in split(segment.start, segment.end, size, near):
            if start < high and low < stop:
                yield LogRange(segment, start, stop)


def size_for(total: int, least: int, size: int) -> int:
    """Bytes of a range such that ``total`` bytes are ``least`` ranges or more, if they can be."""
    return max(RANGE_MIN, min(size, -(-total // max(least, 1))))
