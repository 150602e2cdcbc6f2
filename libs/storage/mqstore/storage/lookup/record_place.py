"""Where a record stands, what names it, and what vouches for its bytes.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqstore.storage.codec import ext_unit, record
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordError
from mqstore.storage.layout import EXT_ADDRESS_MAX, EXT_ADDRESS_MIN
from mqstore.storage.lookup.views import Entry, LogView, QueuesView
from mqstore.storage.own.block_guard import BlockGuard


class Cover(StrEnum):
    """How much of a record was compared with checksums of its blocks."""

    WHOLE = "verified"
    PART = "partly-verified"
    NONE = "not-covered"


@dataclass(frozen=True, slots=True)
class RecordPlace:
    segment: int
    """First physical offset of its segment."""
    position: int
    """Of its first byte in the segment."""
    entry: Entry | None
    """What stands in its own place in its own queue; None without one."""
    unit: ExtUnit | None
    """What that leaves to its ConsumeQueueExt; None where nothing is there."""
    covered: int
    """Bytes of it that stand as they were when they were synced, by our block checksums."""
    cover: Cover


class RecordPlaces:
    """Over the views that look-ups have."""

    def __init__(self, log: LogView, queues: QueuesView, blocks: BlockGuard) -> None:
        self._log = log
        self._queues = queues
        self._blocks = blocks

    def of(self, found: Record) -> RecordPlace | None:
        """The place of a record that was just read; None when it has expired since.

        Raises RecordBlockCorrupt.
        """
        place = self._log.view_from(found.physical_offset)
        if place is None:
            return None
        view, position, _ = place
        covered = self._blocks.covered(view, position, found.physical_offset, found.size)
        return RecordPlace(
            found.physical_offset - position,
            position,
            *self._entry(found),
            covered,
            _cover(covered, found.size),
        )

    def header(self, offset: int) -> Record | None:
        """What stands at an offset, as far as its lengths add up, whatever is wrong with it.

        Without its body; nothing in it can be relied on.
        """
        place = self._log.view_from(offset)
        if place is None:
            return None
        view, position, end = place
        try:
            return record.decode_leniently(view[position:end])
        except RecordError:
            return None

    def _entry(self, found: Record) -> tuple[Entry | None, ExtUnit | None]:
        queue = self._queues.get(found.topic, found.queue_id)
        entry = None if queue is None else queue.entry(found.queue_offset)
        if queue is None or entry is None or entry.tags_code > EXT_ADDRESS_MAX:
            return entry, None
        place = queue.units(entry.tags_code)
        if place is None:
            return entry, None
        view, base = place
        return entry, ext_unit.decode(view, entry.tags_code - EXT_ADDRESS_MIN - base)


def _cover(covered: int, size: int) -> Cover:
    if covered == size:
        return Cover.WHOLE
    return Cover.PART if covered else Cover.NONE
