"""The states and results of index rebuilds.

Offsets are physical, times milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.storage.metadata.sealed_json import StrictValue


class Value(StrictValue):
    """An immutable value with camelCase names in JSON."""


class SegmentRange(Value):
    """The part of a segment that a rebuild covers."""

    name: str
    start: int
    end: int


class RebuildView(Value):
    """The running rebuild."""

    id: str
    owner: str
    """Name of the job, as it was given."""
    shard: str
    store_id: str
    format: str
    tags: bool
    """Whether TAGS are indexed."""
    hash_slots: int
    index_num: int
    from_offset: Annotated[int, Field(alias="from")]
    """Physical offset of the first byte of the range."""
    to_offset: Annotated[int, Field(alias="to")]
    """Physical end of the range; from here the writer indexes."""
    segments: tuple[SegmentRange, ...]
    since_ms: int
    expires_ms: int
    """Time when it is discarded, unless its lease is renewed."""
    disk_ratio: int
    """Percentage of the volume that staging may fill."""
    items: int = 0
    """Items received in complete parts."""
    parts: int = 0
    """Complete parts."""
    parts_planned: int = 0

    @property
    def length(self) -> int:
        """Bytes of the log that the rebuild covers."""
        return self.to_offset - self.from_offset


class RebuildEnded(Value):
    """The last rebuild that ended."""

    id: str
    owner: str
    outcome: str
    """published, given-up, lapsed, failed, or closed with the store."""
    since_ms: int
    ended_ms: int
    seconds: float
    items: int
    files: int
    bytes: int
    """Used bytes of the new files."""


class Published(Value):
    """The result of a publication."""

    id: str
    published: tuple[str, ...]
    replaced: tuple[str, ...]
    items: int
    bytes: int
    """Used bytes of the new files."""


class PartSums(Value):
    """The sums of one complete part."""

    items: int
    slots: int
    """Hash slots in use."""
