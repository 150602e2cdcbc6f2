"""The place of a record: its segment, its queue entry, and the checksums that cover it.

Called from the query service. Every method may be called from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqstore.storage.codec import record
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordError
from mqstore.storage.lookup.lookups import Lookups
from mqstore.storage.lookup.own_checks import entry_of
from mqstore.storage.lookup.views import Entry, LogView, QueuesView
from mqstore.storage.metadata.block_guard import BlockGuard


class Cover(StrEnum):
    """How much of a record was compared with checksums of its blocks."""

    WHOLE = "verified"
    PART = "partly-verified"
    NONE = "not-covered"
    DAMAGED = "damaged"
    """A block of the record has changed on the disk; only the record's own checks passed."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of one record."""

    segment: int
    """First physical offset of its segment."""
    position: int
    """Position of the record's first byte in the segment."""
    entry: Entry | None
    """The queue entry at its queue offset; None without one."""
    unit: ExtUnit | None
    """The ConsumeQueueExt unit of that entry; None without one."""
    covered: int
    """Bytes of the record that our block checksums verified as unchanged since their sync."""
    cover: Cover


class RecordPlaces:
    """Finds places over the views that look-ups use."""

    def __init__(
        self, lookups: Lookups, log: LogView, queues: QueuesView, blocks: BlockGuard
    ) -> None:
        self._read_consistently = lookups.read_consistently
        self._log = log
        self._queues = queues
        self._blocks = blocks

    def of(self, found: Record) -> RecordPlace | None:
        """The place of a record that was just read; None when it has expired since.

        Raises RecordBlockCorrupt.
        """
        return self._read_consistently(self._of, found)

    def _of(self, found: Record) -> RecordPlace | None:
        epoch = self._blocks.epoch
        place = self._log.view_from(found.physical_offset)
        if place is None:
            return None
        view, position, _ = place
        covered = self._blocks.count_covered(
            view, position, found.physical_offset, found.size, epoch
        )
        return RecordPlace(
            found.physical_offset - position,
            position,
            *entry_of(self._queues, found),
            covered,
            _cover(covered, found),
        )

    def header(self, offset: int) -> Record | None:
        """Decode the record at an offset when its lengths add up, ignoring other defects; else
        None.

        Without its body; nothing in it can be relied on.
        """
        return self._read_consistently(self._header, offset)

    def _header(self, offset: int) -> Record | None:
        place = self._log.view_from(offset)
        if place is None:
            return None
        view, position, end = place
        try:
            return record.decode_leniently(view[position:end])
        except RecordError:
            return None


def _cover(covered: int, found: Record) -> Cover:
    if found.is_self_checked:
        return Cover.DAMAGED
    if covered == found.size:
        return Cover.WHOLE
    return Cover.PART if covered else Cover.NONE
