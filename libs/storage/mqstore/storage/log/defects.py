"""Handles damaged stretches in dispatch: keeps records that can be placed, and finds the next one.

Called from ``dispatch``, ``index`` and ``recovery.walk``. RocketMQ skips a record whose lengths
disagree by its TOTALSIZE, and abandons the rest of the segment at an unknown magic. This module
continues at the place that the record's own size or a queue entry names. A scan comes last, since a
body may contain a forged record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from mqstore.storage._kernel import Defect, RecordSearch, check_record, check_run
from mqstore.storage.codec.record import Record, decode_leniently
from mqstore.storage.layout import RECORD_FIXED_SIZE

_FORGERIES_MAX: Final = 64
"""Maximum number of records inside a damaged stretch that are tried as the next one."""

_READABLE: Final = frozenset(
    {Defect.NONE, Defect.BLANK, Defect.HOST_INVALID, Defect.PROPERTIES_MALFORMED}
)
_PLACEABLE: Final = frozenset({Defect.HOST_INVALID, Defect.PROPERTIES_MALFORMED})


class Stretch(NamedTuple):
    """A part of one segment: ``view[position:end]``; ``view[0]`` is at physical offset ``base``."""

    view: memoryview
    position: int
    end: int
    base: int

    @property
    def offset(self) -> int:
        """The physical offset of ``position``."""
        return self.base + self.position


class Queues(Protocol):
    """The queues, as far as stepping over damage needs them."""

    def next_physical(self, after: int) -> int | None:
        """The least physical offset above ``after`` that a queue entry names."""


class _NoQueues:
    """Queues without an entry."""

    def next_physical(self, after: int) -> int | None:
        return None


NO_QUEUES: Final[Queues] = _NoQueues()
"""In place of queues that are not open."""


class Resume(NamedTuple):
    """The position at which dispatch continues, and why the bytes before it were skipped."""

    position: int
    why: str


def placeable_record(stretch: Stretch) -> Record | None:
    """Decode a record with damaged hosts or properties whose lengths add up; else None.

    RocketMQ dispatches such a record too; its readers report the damage.
    """
    view, at = stretch.view, stretch.position
    defect, size = check_record(view, at, stretch.end, stretch.offset, False)
    return decode_leniently(view[at : at + size]) if defect in _PLACEABLE and size else None


class DamageSearch:
    """Searches the whole records behind damage, one segment after the other. For one thread."""

    def __init__(self) -> None:
        self._view = memoryview(b"")
        self._search: RecordSearch | None = None

    def of(self, stretch: Stretch) -> RecordSearch:
        """The search in the segment of a stretch: the next stretches of it use the same one."""
        if self._search is None or self._view is not stretch.view:
            self._view = stretch.view
            self._search = RecordSearch(stretch.view, stretch.base, True)
        return self._search

    def forget(self) -> None:
        """Let go of the segment, which may then be removed or changed."""
        self._view, self._search = memoryview(b""), None


def resume_after(stretch: Stretch, queues: Queues, searches: DamageSearch) -> Resume:
    """Find the first position after a defect at which reading may continue, or ``stretch.end``."""
    view, at, end, base = stretch.view, stretch.position, stretch.end, stretch.base
    defect, size = check_record(view, at, end, stretch.offset, False)
    if size:
        return Resume(at + size, f"{defect.name.lower()}, its size gives the next")
    (total,) = struct.unpack_from(">i", view, at) if end - at >= 4 else (0,)
    if total >= RECORD_FIXED_SIZE and _leads_on(stretch, at + total):
        return Resume(at + total, f"{defect.name.lower()}, its size gives the next")
    named = queues.next_physical(stretch.offset)
    search = searches.of(stretch)
    if named is not None and named - base < end and _leads_on(stretch, named - base):
        begin = unlisted_before(view, (at + 1, named - base), base, search) or named - base
        return Resume(begin, "a queue entry names the next")
    found = search.find(at + 1, end)
    if found >= 0:
        return Resume(found, f"{defect.name.lower()}, the next was found by a scan")
    return Resume(end, f"{defect.name.lower()}, and nothing whole follows in its segment")


def _leads_on(stretch: Stretch, position: int) -> bool:
    if position == stretch.end:
        return True
    if not stretch.position < position < stretch.end:
        return False
    offset = stretch.base + position
    return check_record(stretch.view, position, stretch.end, offset, False)[0] in _READABLE


def unlisted_before(
    view: memoryview,
    bounds: tuple[int, int],
    base: int,
    search: RecordSearch,
    is_due: Callable[[int], bool] = lambda _: False,
) -> int | None:
    """Find the first record, between two positions, from which whole ones reach the second of them
    or the segment's end, or that ``is_due``; None without one.

    Such records (prepared, or not dispatched yet) have no queue entry.
    """
    at, stop = bounds
    for _ in range(_FORGERIES_MAX):
        at = search.find(at, stop)
        if at < 0:
            return None
        _, reached, _, _ = check_run(view, at, stop, base, verify_body=False, max_records=stop)
        if is_due(at) or reached == stop or _is_end(view, reached):
            return at
        at += 1
    return None


def _is_end(view: memoryview, position: int) -> bool:
    """Whether a blank record leads from there to the segment's end."""
    left = len(view) - position
    return check_record(view, position, len(view), -1, False) == (Defect.BLANK, left)
