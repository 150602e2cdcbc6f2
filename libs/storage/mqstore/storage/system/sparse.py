"""Reads files that are mostly zeros: skips holes without reading, and zeros chunk by chunk.

A segment of 1 GiB that holds a few megabytes would take seconds to read to its end. Every function
takes the bytes of a file and ``next_data``, which returns the next position that may hold data
(``FileSystem.next_data`` of that file).

Called from recovery, and to find a queue's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from mqstore.storage._kernel import RecordSearch, is_zero
from mqstore.storage.layout import PAGE_SIZE

CHUNK: Final = 1 << 20
SMALL_CHUNK: Final = PAGE_SIZE
"""For queue files, whose reserved part is small: a chunk of one page that holds data contains no
hole. On a full tmpfs a mapped hole cannot be read, since reading makes a page (SIGBUS)."""

NextData = Callable[[int], int | None]


def read_everything(position: int) -> int:
    """The ``NextData`` of bytes whose holes are unknown."""
    return position


def data_chunks(
    start: int, end: int, next_data: NextData, size: int = CHUNK
) -> Iterator[tuple[int, int]]:
    """Ranges of at most ``size`` bytes that together cover everything but holes.

    A run of data begins with a chunk of one page, and each further chunk is twice as long: the hole
    that its last chunk covers is never longer than the run. Chunks of data end where pages end.
    """
    position, step = start, 0
    while position < end and (found := next_data(position)) is not None and found < end:
        step = min(2 * step if found == position else PAGE_SIZE, size) or PAGE_SIZE
        stop = min(max(found + 1, (found + step) // PAGE_SIZE * PAGE_SIZE), end)
        yield found, stop
        position = stop


def last_nonzero(
    view: memoryview, start: int, next_data: NextData = read_everything, size: int = CHUNK
) -> int:
    """The position after the last byte that is not zero, or ``start`` when all are zero.

    ``size`` is that of a chunk; reading a hole inside a chunk makes a page of zeros in memory. All
    chunks are found before any is read: pages that the kernel reads ahead into a hole become data.
    """
    found, tail = start, max(start, (len(view) - 1) // PAGE_SIZE * PAGE_SIZE)
    chunks = data_chunks(start, len(view), next_data, size)
    first = list(islice(chunks, 2))
    if len(first) == 2 and next_data(tail) == tail and not is_zero(view[tail:]):  # a full file
        return tail + len(bytes(view[tail:]).rstrip(b"\0"))
    for begin, stop in [*first, *chunks]:
        if not is_zero(view[begin:stop]):
            found = begin + len(bytes(view[begin:stop]).rstrip(b"\0"))
    return found


def find_whole(
    search: RecordSearch,
    view: memoryview,
    position: int,
    next_data: NextData = read_everything,
    passed: Callable[[int], None] = lambda _: None,
) -> int:
    """Call ``search.find`` of ``view``, but fast over long zeros; -1 when there is none.

    ``passed`` is called with the position reached after each chunk without one.
    """
    for begin, stop in data_chunks(position, len(view), next_data):
        if not is_zero(view[begin:stop]):
            # A record that begins in this chunk may end in another. The first bytes of its size may
            # be zeros of the chunk before.
            found = search.find(max(begin - 3, position), len(view), stop)
            if found >= 0:
                return found
        passed(stop)
    return -1
