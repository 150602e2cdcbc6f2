"""Counters of irregular events in dispatch, with a bounded log of them.

The thread that holds the dispatcher's lock writes; any thread may read.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordError
from mqstore.storage.log_lines import bounded_log

_log = bounded_log(__name__)


@dataclass(slots=True)
class DispatchCounts:
    """Events since this dispatcher was made."""

    indexed: int = 0
    """Records handled by the index's own run."""
    defects: int = 0
    """Stretches of the log that are no whole record."""
    lost_bytes: int = 0
    """Bytes of those stretches from which no record could be read."""
    holes_filled: int = 0
    present: int = 0
    """Queue offsets at which the same entry stood already."""
    different: int = 0
    """Queue offsets at which another entry stands; that entry was kept."""
    refused: int = 0
    """Records without a queue entry: an impossible queue offset, or a name that is no valid
    path."""

    def add_defect(self, error: RecordError, *, placed: bool) -> None:
        """Count a damaged record; ``placed`` when it got its queue entry all the same."""
        self.defects += 1
        if placed:
            _log.warning("dispatched although damaged: %s", error)

    def note_lost(self, start: int, end: int, why: str) -> None:
        """Count the bytes between two physical offsets as lost: nothing there gets an entry."""
        self.lost_bytes += end - start
        _log.error("offsets %d to %d are not dispatched: %s", start, end, why)

    def note_refused(self, found: Record, why: str) -> None:
        """Count a whole record that gets no queue entry."""
        self.refused += 1
        _log.error("record at offset %d gets no queue entry: %s", found.physical_offset, why)
