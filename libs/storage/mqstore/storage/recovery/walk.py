"""The walk over the records of a segment: whole ones in runs, and the damage between them.

Behind damage it continues where the record's own size or a queue entry says (``log.defects``); a
search comes last, since a body may contain a forged record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.storage._kernel import Defect, check_record, check_run
from mqstore.storage.codec.record import Blank
from mqstore.storage.log.defects import NO_QUEUES, DamageSearch, Queues, Stretch, resume_after

_RECORDS: Final = 1_024
"""Records checked in one call of the kernel."""


class Run(NamedTuple):
    """Whole records that follow one another."""

    starts: array[int]
    """Position of each."""
    stop: int
    newest_ms: int
    """STORETIMESTAMP of the last one that has it; 0 without any."""
    defect: Defect
    """The reason why no other one follows; NONE where one may."""


class Damage(NamedTuple):
    """Bytes from ``position`` to before ``stop`` without a whole record."""

    position: int
    stop: int
    defect: Defect


def whole_runs(
    view: memoryview, position: int, end: int, base: int, *, verify_body: bool
) -> Iterator[Run]:
    """Yield the whole records from ``position`` to the first other bytes, or to ``end``. ``base``
    is the physical offset of ``view[0]``."""
    defect, count = Defect.NONE, _RECORDS
    while defect == Defect.NONE and count == _RECORDS:
        starts = array("q")
        defect, position, count, newest_ms = check_run(
            view,
            position,
            end,
            base,
            verify_body=verify_body,
            max_records=_RECORDS,
            starts=starts,
        )
        yield Run(starts, position, newest_ms, defect)


def walk(
    view: memoryview,
    position: int,
    end: int,
    base: int,
    *,
    verify_body: bool,
    queues: Queues = NO_QUEUES,
) -> Iterator[Run | Damage | Blank]:
    """Yield everything from ``position``, where a record begins, to ``end``, in order; a blank
    record ends the walk."""
    searches = DamageSearch()
    while position < end:
        for run in whole_runs(view, position, end, base, verify_body=verify_body):
            if run.starts:
                yield run
            position = run.stop
        if run.defect == Defect.BLANK:
            yield Blank(base + position, check_record(view, position, end, -1, False)[1])
            return
        if run.defect != Defect.NONE:
            begin, stretch = position, Stretch(view, position, end, base)
            position = min(resume_after(stretch, queues, searches).position, end)
            yield Damage(begin, position, run.defect)
