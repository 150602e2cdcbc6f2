"""Finds incomplete ConsumeQueue entries that a crash may leave, from their bytes. Any thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import Final

from mqstore.storage.layout import QUEUE_ENTRY_SIZE, RECORD_FIXED_SIZE, SECTOR_SIZE

GAP_MAX: Final = 1_000
"""Maximum number of queue offsets by which a record may be ahead of its queue when the log between
has no room for so many records. For an unreadable record (``recovery``) this is the limit in any
case."""

_SIZE_BYTES: Final = range(8, 12)
"""Position of the size in an entry, big-endian."""
_NO_BIT: Final = re.compile(rb"\0")
_TOO_HIGH: Final = re.compile(rb"[\x7f-\xff]")
"""First byte of a size below 0, or of a pre-blank entry's size."""


def without_size(data: bytes) -> Iterator[int]:
    """Yield the numbers of entries without a valid size: 0, below 0, or that of a pre-blank entry.

    Examines whole columns of bytes, since a recovery examines all queues of a store.
    """
    columns = [data[byte::QUEUE_ENTRY_SIZE] for byte in _SIZE_BYTES]
    any_bit = reduce(or_, map(int.from_bytes, columns)).to_bytes(len(columns[0]))
    yield from (found.start() for found in _NO_BIT.finditer(any_bit))
    yield from (found.start() for found in _TOO_HIGH.finditer(columns[0]))


def has_room(missing: int, start: int, end: int) -> bool:
    """Whether so many entries may be missing between two physical offsets."""
    return missing <= GAP_MAX or missing <= (end - start) // RECORD_FIXED_SIZE


def is_torn(position: int, found: bytes, due: bytes, before: Iterable[bytes]) -> bool:
    """Whether an entry is ``due`` in one of its two sectors and one of ``before`` in the other."""
    first = sector_split(position)
    if found == due or not first:
        return False
    return any(
        found in (due[:first] + other[first:], other[:first] + due[first:]) for other in before
    )


def sector_split(position: int) -> int:
    """Bytes of the entry at a position of its file in an earlier sector than the rest; 0 when it
    lies in one."""
    first = -position % SECTOR_SIZE
    return first if first < QUEUE_ENTRY_SIZE else 0
