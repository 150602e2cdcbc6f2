"""The status of an open store at one moment, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A moment's picture of an open store; offsets are physical, sizes and offsets in bytes."""

    store_id: str
    shard: str
    epoch: int
    format: str
    health: str
    root: str
    commit_log: str
    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    segments: int
    segment_size: int
    topics: int
    queues: int
    index_files: int
    index_complete: bool
    index_offset: int
    hash_slots: int
    """Hash slots of an index file."""
    index_num: int
    index_trouble: str | None
    """Why keys may be missed until the index is rebuilt."""
    damaged_stretches: int
    """Met by dispatch since this opening; see the log and the recovery report."""
    disk_total: int
    disk_used: int
    disk_free: int
    read_only_reason: str | None

    @property
    def flush_behind(self) -> int:
        """Bytes that are not known to be on disk."""
        return self.max_offset - self.flushed_offset

    @property
    def dispatch_behind(self) -> int:
        """Bytes that are not in their queues."""
        return self.max_offset - self.dispatched_offset

    @property
    def index_behind(self) -> int:
        """Bytes that are not in the index."""
        return self.max_offset - self.index_offset


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One commit log file: its name, first physical offset, size, and bytes in use."""

    name: str
    offset: int
    size: int
    used: int
    modified_ms: int
