"""Where a record stands, what names it, and what vouches for its bytes.

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
    """A block of it has changed on the disk; only the record's own checks vouch for it."""


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

    def __init__(
        self, lookups: Lookups, log: LogView, queues: QueuesView, blocks: BlockGuard
    ) -> None:
        self._settled = lookups.settled
        self._log = log
        self._queues = queues
        self._blocks = blocks

    def of(self, found: Record) -> RecordPlace | None:
        """The place of a record that was just read; None when it has expired since.

        Raises RecordBlockCorrupt.
        """
        return self._settled(self._of, found)

    def _of(self, found: Record) -> RecordPlace | None:
        epoch = self._blocks.epoch
        place = self._log.view_from(found.physical_offset)
        if place is None:
            return None
        view, position, _ = place
        covered = self._blocks.covered(view, position, found.physical_offset, found.size, epoch)
        return RecordPlace(
            found.physical_offset - position,
            position,
            *entry_of(self._queues, found),
            covered,
            _cover(covered, found),
        )

    def header(self, offset: int) -> Record | None:
        """What stands at an offset, as far as its lengths add up, whatever is wrong with it.

        Without its body; nothing in it can be relied on.
        """
        return self._settled(self._header, offset)

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
