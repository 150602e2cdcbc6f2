"""What dispatch met that is not as usual: counted, and logged up to a bound.

Whoever dispatches writes, under the dispatcher's lock; any thread may read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import RecordError

_LOGGED_MAX: Final = 100
"""Stretches that are logged one by one; the counters go on."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class DispatchCounts:
    """What was met since this dispatcher was made."""

    indexed: int = 0
    """Handled by the index's own run."""
    defects: int = 0
    """Stretches that are no whole record."""
    lost_bytes: int = 0
    """Bytes of those stretches that nothing could be read from."""
    holes_filled: int = 0
    present: int = 0
    """Entries that were there already."""
    different: int = 0
    """Queue offsets at which another entry stands; it was left as found."""
    refused: int = 0
    """Queue offsets that no queue can have, and names that may not become a path."""

    def add_defect(self, error: RecordError, *, placed: bool) -> None:
        """A damaged record was met; ``placed`` where it got its queue entry all the same."""
        self.defects += 1
        if placed and self.defects <= _LOGGED_MAX:
            _log.warning("dispatched although damaged: %s", error)

    def lose(self, start: int, end: int, why: str) -> None:
        """Nothing between two physical offsets gets an entry."""
        self.lost_bytes += end - start
        if self.defects <= _LOGGED_MAX:
            _log.error("offsets %d to %d are not dispatched: %s", start, end, why)

    def refuse(self, found: Record, why: str) -> None:
        """A whole record gets no queue entry."""
        self.refused += 1
        if self.refused <= _LOGGED_MAX:
            _log.error("record at offset %d gets no queue entry: %s", found.physical_offset, why)
