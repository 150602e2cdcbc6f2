"""Finds incomplete ConsumeQueue entries that a crash may leave, from their bytes. Any thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from mqstore.storage._kernel import split_entries_out_of_order
from mqstore.storage.layout import QUEUE_ENTRY_SIZE, RECORD_FIXED_SIZE, SECTOR_SIZE
from mqstore.storage.queues.queue_entry import PRE_BLANK

if TYPE_CHECKING:
    from mqstore.storage.mapped.mapped_file import MappedFile

GAP_MAX: Final = 1_000
"""Maximum number of queue offsets by which a record may be ahead of its queue when the log between
has no room for so many records. For an unreadable record (``recovery``) this is the limit in any
case."""

_SIZE_BYTES: Final = range(8, 12)
"""Position of the size in an entry, big-endian."""
_NO_BIT: Final = re.compile(rb"\0")
_TOO_HIGH: Final = re.compile(rb"[\x7f-\xff]")
"""First byte of a size below 0, or of a pre-blank entry's size."""
_BLANKS: Final = re.compile(b"(?:%b)*+" % re.escape(PRE_BLANK))


def _used_bytes(mapped: MappedFile, end: int) -> int:
    """Bytes of a file that the entries before ``end`` take."""
    return max(0, min(mapped.size, end * QUEUE_ENTRY_SIZE - mapped.base_offset))


def first_not_blank(files: Sequence[MappedFile], end: int) -> int:
    """The first entry behind the pre-blank ones with which a queue's first file begins."""
    if not files:
        return end
    mapped = files[0]
    found = _BLANKS.match(mapped.view[: _used_bytes(mapped, end)])
    return (mapped.base_offset + (0 if found is None else found.end())) // QUEUE_ENTRY_SIZE


def without_size(files: Sequence[MappedFile], begin: int, end: int) -> Iterator[int]:
    """Yield the numbers of the entries of a range that are missing, in whole or in part, or
    pre-blank."""
    for mapped in files:
        first = max(begin, mapped.base_offset // QUEUE_ENTRY_SIZE)
        skipped = first * QUEUE_ENTRY_SIZE - mapped.base_offset
        for number in _without_size(bytes(mapped.view[skipped : _used_bytes(mapped, end)])):
            yield first + number


def _without_size(data: bytes) -> Iterator[int]:
    """Yield the numbers of entries without a valid size: 0, below 0, or that of a pre-blank entry.

    Examines whole columns of bytes, since a recovery examines all queues of a store.
    """
    columns = [data[byte::QUEUE_ENTRY_SIZE] for byte in _SIZE_BYTES]
    any_bit = reduce(or_, map(int.from_bytes, columns)).to_bytes(len(columns[0]))
    yield from (found.start() for found in _NO_BIT.finditer(any_bit))
    yield from (found.start() for found in _TOO_HIGH.finditer(columns[0]))


def out_of_order(files: Sequence[MappedFile], begin: int, end: int) -> Iterator[int]:
    """Yield the entries of a range that lie in two sectors and do not follow the previous one."""
    for mapped in files:
        first = mapped.base_offset // QUEUE_ENTRY_SIZE
        found = split_entries_out_of_order(mapped.view, _used_bytes(mapped, end), SECTOR_SIZE)
        yield from (first + at for at in found if first + at >= begin)


def runs_without_size(data: bytes) -> list[tuple[int, int]]:
    """The runs (from, to before) of such entries, in ascending order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(_without_size(data)):
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs


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
