"""Entries of queues, counted by tags and by units of filters."""

from array import array
from collections.abc import Iterable

class Tags:
    """Tags that a pull wants: their codes (``properties.tags_code``, an array of int64 in memory's
    own order) and, one for each, their UTF-8. ValueError when these are not as many."""

    def __init__(self, codes: array[int], texts: Iterable[bytes]) -> None: ...

def count_untagged(
    entries: memoryview,
    position: int,
    count: int,
    codes: array[int],
    units: memoryview | None = None,
    units_base: int = 0,
) -> int:
    """How many of ``count`` queue entries from ``entries[position:]`` on come before the first
    whose tags code is one of ``codes`` (signed 64-bit), or the address of a ConsumeQueueExt unit
    that has the code, or that does not stand whole in ``units``, the file of them that begins at
    ``units_base``. Releases the GIL."""

def count_unflagged(
    entries: memoryview,
    position: int,
    count: int,
    positions: array[int],
    bits: int,
    born_ms: int,
    units: memoryview,
    units_base: int,
) -> int:
    """How many of ``count`` queue entries from ``entries[position:]`` on come before the first
    whose message a subscription may want, as its unit in ``units`` says: stored after ``born_ms``
    with a bitmap of ``bits`` that lacks one of ``positions`` (signed 64-bit) it is not wanted.
    Releases the GIL."""

def walk_units(units: memoryview, position: int) -> int:
    """Where the run of whole ConsumeQueueExt units from ``position`` on ends. Releases the GIL."""

def split_entries_out_of_order(entries: memoryview, length: int, sector: int) -> list[int]:
    """Of the first ``length`` bytes of a queue file, numbers of those entries in which a sector
    begins, unless they and the one before name records, the later one behind the earlier one."""
