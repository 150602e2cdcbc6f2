"""Answers to a job that rebuilds a shard's index beside its writer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.client.models import Model


class SegmentRange(Model):
    """A file of the log, as far as an index rebuild goes; physical offsets."""

    name: str
    start: int
    end: int


class IndexRebuild(Model):
    """A rebuild of the index that runs. Offsets are physical, times ms since the epoch."""

    id: str
    owner: str
    shard: str
    store_id: str
    format: str
    tags: bool
    """Whether TAGS are indexed."""
    hash_slots: int
    index_num: int
    from_offset: Annotated[int, Field(alias="from")]
    """The first byte of the log that it is of, ..."""
    to_offset: Annotated[int, Field(alias="to")]
    """... and the one behind the last."""
    segments: tuple[SegmentRange, ...]
    since_ms: int
    expires_ms: int
    """It is discarded then, unless its lease goes on."""
    disk_ratio: int
    """Percent of the volume that staging may fill."""
    items: int = 0
    """That have come in whole parts."""
    parts: int = 0
    """That are whole."""
    parts_planned: int = 0


class IndexRebuildEnded(Model):
    """The last one that ended; ``outcome`` is published, given-up, lapsed, failed or closed."""

    id: str
    owner: str
    outcome: str
    since_ms: int
    ended_ms: int
    seconds: float
    items: int
    files: int
    bytes: int


class IndexRebuilds(Model):
    running: IndexRebuild | None
    last: IndexRebuildEnded | None


class IndexPart(Model):
    """One part that is whole: its items, and the slots in use."""

    items: int
    slots: int


class IndexPublished(Model):
    """Names of index files: what took the place of what."""

    id: str
    published: tuple[str, ...]
    replaced: tuple[str, ...]
    items: int
    bytes: int
