"""Ends of records in the bytes of a segment. Called from ``creation`` and ``restoring``."""

from __future__ import annotations

from dataclasses import dataclass

from mqstore.storage._kernel import check_run
from mqstore.storage.queues.store_times import store_time_at
from mqstore.storage.recovery.walk import Run, walk


@dataclass(frozen=True, slots=True)
class RecordEnd:
    """A place where a log may end: behind a whole record."""

    position: int
    last_ms: int | None
    """STORETIMESTAMP of the last record before it that has one."""


def last_end(view: memoryview, stop: int, base: int, *, until_ms: int | None = None) -> RecordEnd:
    """Find the last place at or before ``stop`` where a segment's log may end.

    It is behind a whole record, and never behind the blank one that ends a segment: a writer makes
    that again. With ``until_ms`` it is before the first record that was stored after that time.
    Damage between whole records is passed over. ``base`` is the segment's physical offset.
    """
    reached, newest = 0, None
    for found in walk(view, 0, stop, base, verify_body=False):
        if not isinstance(found, Run):
            continue
        if until_ms is not None:
            for start in found.starts:
                stored = store_time_at(view, start)
                if stored is not None and stored > until_ms:
                    return RecordEnd(start, newest)
                newest = stored or newest
        reached, newest = found.stop, found.newest_ms or newest
    return RecordEnd(reached, newest)


def first_time(view: memoryview, stop: int, base: int) -> int | None:
    """STORETIMESTAMP of a segment's first record; None where no whole record begins there."""
    _, _, count, first_ms = check_run(view, 0, stop, base, verify_body=False, max_records=1)
    return first_ms or None if count else None
