"""Plans a repair below the durable watermark: reads the whole log there, changes nothing.

All of these records were durable, so nothing is cut and no record counts as left over from an
earlier cut: a damaged record is replaced by a tombstone, as recovery does above the watermark.

Called from ``scrub.repairs``.
"""

from __future__ import annotations

from collections.abc import Callable

from mqstore.storage.recovery.log_scan import LogScan, queue_place
from mqstore.storage.recovery.report import RepairPlan
from mqstore.storage.recovery.view import Segment, StoreView


def plan_repairs(
    view: StoreView, end: int, progress: Callable[[int, int], None] | None = None
) -> RepairPlan:
    """Read the segments of ``view`` up to physical offset ``end``, a record's end below which the
    log is durable. ``progress`` is called with (bytes done, of total)."""
    scan = _RepairScan(view, end, progress)
    found = scan.run(view.min_offset)
    return RepairPlan(
        start=view.min_offset,
        stop=end,
        scanned_bytes=found.scanned_bytes,
        records=found.records,
        damaged=tuple(found.damaged),
        damaged_count=found.damaged_count,
        damaged_blocks=tuple(found.damaged_blocks),
        damaged_block_count=found.damaged_block_count,
        actions=tuple(found.repairs),
    )


class _RepairScan(LogScan):
    """A scan of a log whose end is known."""

    def __init__(
        self, view: StoreView, end: int, progress: Callable[[int, int], None] | None
    ) -> None:
        super().__init__(view, progress)
        self._end = end

    def _readable(self, segment: Segment, view: memoryview) -> memoryview:
        return view[: max(0, self._end - segment.base)]

    def _is_newer(self, view: memoryview, position: int, offset: int) -> bool:
        place = queue_place(view, position)
        if place is not None:
            self._note(place)
        return True

    def _resume_behind(
        self, segment: Segment, view: memoryview, position: int, size: int
    ) -> int | None:
        """The next whole record, or the end; never None, since the damage reaches to the end when
        nothing whole follows."""
        stop = segment.base + len(view)
        found = super()._resume_behind(segment, view, position, size)
        if found is not None:
            return min(found, stop)
        return min(segment.base + position + size, stop) if size else stop

    def _segment(self, segment: Segment, start: int, *, last: bool) -> bool:
        super()._segment(segment, start, last=last)
        return segment.end < self._end
