"""The states and results of index rebuilds.

Offsets are physical, times milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Value(BaseModel):
    """An immutable value with camelCase names in JSON."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class SegmentRange(Value):
    """The part of a segment that a rebuild covers."""

    name: str
    start: int
    end: int


class RebuildView(Value):
    """The running rebuild."""

    id: str
    owner: Annotated[str, Field(description="Who does it, as they said.")]
    shard: str
    store_id: str
    format: str
    tags: Annotated[bool, Field(description="Whether TAGS are indexed.")]
    hash_slots: int
    index_num: int
    from_offset: Annotated[int, Field(alias="from", description="The first byte of the log.")]
    to_offset: Annotated[
        int, Field(alias="to", description="Behind the last one; from here the writer indexes.")
    ]
    segments: tuple[SegmentRange, ...]
    since_ms: int
    expires_ms: Annotated[int, Field(description="Discarded then, unless the lease goes on.")]
    disk_ratio: Annotated[int, Field(description="Percent of the volume that staging may fill.")]
    items: Annotated[int, Field(description="That have come in whole parts.")] = 0
    parts: Annotated[int, Field(description="That are whole.")] = 0
    parts_planned: int = 0

    @property
    def length(self) -> int:
        """Bytes of the log that the rebuild covers."""
        return self.to_offset - self.from_offset


class RebuildEnded(Value):
    """The last rebuild that ended."""

    id: str
    owner: str
    outcome: Annotated[
        str, Field(description="published, given-up, lapsed, failed, or closed with the store.")
    ]
    since_ms: int
    ended_ms: int
    seconds: float
    items: int
    files: int
    bytes: Annotated[int, Field(description="Of the new files, as far as they are used.")]


class Published(Value):
    """The result of a publication."""

    id: str
    published: tuple[str, ...]
    replaced: tuple[str, ...]
    items: int
    bytes: Annotated[int, Field(description="Of the new files, as far as they are used.")]


class PartSums(Value):
    """The sums of one complete part."""

    items: int
    slots: Annotated[int, Field(description="That are in use.")]
