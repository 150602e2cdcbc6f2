"""What dispatch does where no whole record stands: keep what can be placed, find the next record.

Called from ``dispatch`` only. RocketMQ skips a record whose lengths disagree by its TOTALSIZE, and
abandons the rest of the segment at an unknown magic; here reading goes on at the place that the
record's own size or a queue entry names, and a scan comes last, since a body may hold a forgery.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Protocol

from mqstore.storage._kernel import Defect, check_record, check_run, find_record
from mqstore.storage.codec.record import Record, decode_leniently
from mqstore.storage.layout import RECORD_FIXED_SIZE

_FORGERIES_MAX: Final = 64
"""Records inside a damaged stretch that are tried as the place to go on."""

_READABLE: Final = frozenset(
    {Defect.NONE, Defect.BLANK, Defect.HOST_INVALID, Defect.PROPERTIES_MALFORMED}
)
_PLACEABLE: Final = frozenset({Defect.HOST_INVALID, Defect.PROPERTIES_MALFORMED})


class Stretch(NamedTuple):
    """A part of one segment: ``view[position:end]``, ``view[0]`` standing at ``base``."""

    view: memoryview
    position: int
    end: int
    base: int

    @property
    def offset(self) -> int:
        return self.base + self.position


class Named(Protocol):
    """The queues, as far as damage is stepped over by them."""

    def next_physical(self, after: int) -> int | None:
        """The least physical offset above ``after`` that a queue entry names."""


class Resume(NamedTuple):
    """Where dispatch goes on, and why the bytes before it were left out."""

    position: int
    why: str


def placeable_record(stretch: Stretch) -> Record | None:
    """The record at a stretch whose lengths add up, however odd its hosts or properties.

    RocketMQ dispatches such a record too, and what reads it then says what is wrong with it.
    """
    view, at = stretch.view, stretch.position
    defect, size = check_record(view, at, stretch.end, stretch.offset, False)
    return decode_leniently(view[at : at + size]) if defect in _PLACEABLE and size else None


def resume_after(stretch: Stretch, queues: Named) -> Resume:
    """The first place after a defect where reading may go on; else ``stretch.end``."""
    view, at, end, base = stretch.view, stretch.position, stretch.end, stretch.base
    defect, size = check_record(view, at, end, stretch.offset, False)
    if size:
        return Resume(at + size, f"{defect.name.lower()}, its size tells the next")
    (total,) = struct.unpack_from(">i", view, at) if end - at >= 4 else (0,)
    if total >= RECORD_FIXED_SIZE and _leads_on(stretch, at + total):
        return Resume(at + total, f"{defect.name.lower()}, its size tells the next")
    named = queues.next_physical(stretch.offset)
    if named is not None and named - base < end and _leads_on(stretch, named - base):
        return Resume(_unlisted_before(stretch, named - base), "a queue entry names the next")
    found = find_record(view, at + 1, end, base, True)
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


def _unlisted_before(stretch: Stretch, named: int) -> int:
    """The first record from which a chain of whole records reaches ``named``.

    Prepared and not yet dispatched records have no queue entry.
    """
    at = stretch.position + 1
    for _ in range(_FORGERIES_MAX):
        at = find_record(stretch.view, at, named, stretch.base, True)
        if at < 0:
            return named
        defect, reached, _, _ = check_run(
            stretch.view, at, named, stretch.base, verify_body=False, max_records=named
        )
        if defect == Defect.NONE and reached == named:
            return at
        at += 1
    return named
