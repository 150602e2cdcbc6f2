"""Entries of queues, counted by tags and by units of filters."""

from array import array
from collections.abc import Iterable

class Tags:
    """The tags of a pull: their codes (``properties.tags_code``, an array of int64 in memory's own
    order) and their texts in UTF-8. Raises ValueError when the numbers of both differ."""

    def __init__(self, codes: array[int], texts: Iterable[bytes]) -> None: ...

def count_untagged(
    entries: memoryview,
    position: int,
    count: int,
    codes: array[int],
    units: memoryview | None = None,
    units_base: int = 0,
) -> int:
    """Count the queue entries from ``entries[position:]``, at most ``count``, before the first one
    with a matching tags code.

    An entry matches when its code is one of ``codes`` (signed 64-bit), or the address of a
    ConsumeQueueExt unit that has the code, or that is not whole in ``units``, the file of them that
    begins at ``units_base``. Releases the GIL.
    """

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
    """Count the queue entries from ``entries[position:]``, at most ``count``, before the first one
    whose message a subscription may match by its unit in ``units``.

    A message stored after ``born_ms`` with a bitmap of ``bits`` that lacks one of ``positions``
    (signed 64-bit) does not match. Releases the GIL.
    """

def walk_units(units: memoryview, position: int) -> int:
    """The end of the run of whole ConsumeQueueExt units from ``position`` on. Releases the GIL."""

def split_entries_out_of_order(entries: memoryview, length: int, sector: int) -> list[int]:
    """The numbers of entries of the first ``length`` bytes of a queue file in which a sector
    begins, unless they and the one before name records in ascending order."""
