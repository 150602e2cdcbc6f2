"""The state page's fields at one moment (``state_page``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Health(IntEnum):
    """The last writer's report on the store."""

    RECOVERING = 1
    READY = 2
    READ_ONLY = 3
    """Open, but puts are rejected: damage or a full disk."""
    FAILED = 4
    """A sync failed or the disk is lost; the writer ended."""
    CLOSED = 5
    """Closed cleanly."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The fields at one moment, all of one epoch. Offsets are physical, in bytes."""

    store_id: str
    """32 hexadecimal digits."""
    boot_id: str
    """The machine start in which the page was last opened for writing."""
    epoch: int
    health: Health
    recovery_done: int
    recovery_total: int
    min_offset: int
    max_offset: int
    """The readable end of the log."""
    flushed_offset: int
    """The durable watermark: every byte below it was synced."""
    dispatched_offset: int
    """Physical offset below which all queue and index entries are in place."""
    index_generation: int
    """Grows whenever an index file is added or removed."""
    index_complete: bool
    """False while the index is being rebuilt: key queries may miss records."""
    arrivals: int
    """Counter of arrivals, 32 bits, for ``wait``."""
    expired_below: int | None = None
    """Upper bound of the log's minimum, as retention noted it; None without a note."""
    log_epoch: int = 0
    """The newest epoch of the log."""
    log_end: int = 0
    """The end of the log: above ``max_offset`` where readers see the confirmed part only."""
    confirmed_offset: int = 0
    """Every copy in sync has all below on its disk; 0 where the store has no copies."""
    in_sync: int = 0
    """Number of copies in sync, the leader included; 0 where the store has no copies."""
    leader_end: int = 0
    """Greatest known end of the leader's log, of a store that follows one; else 0."""

    @property
    def behind(self) -> int | None:
        """Bytes of the leader's log that are not here, as far as is known; None in a leader."""
        return max(0, self.leader_end - self.log_end) if self.leader_end else None
