"""The files of the commit log, and the store's bounds, as readers see them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.wire.base import Reply
from mqstore.wire.shards import ShardEntry


class LogFile(Reply, title="SegmentView"):
    """A file of the commit log, with its bytes that are on disk."""

    name: str
    offset: Annotated[int, Field(description="Of its first byte in the log.")]
    size: Annotated[int, Field(description="Bytes that can be read.")]
    full: Annotated[bool, Field(description="No byte will be added.")]


class LogFiles(Reply, title="SegmentsView"):
    """The commit log's files, oldest first."""

    epoch: Annotated[int, Field(description="Within one, no byte that could be read changes.")]
    shard: int
    segments: tuple[LogFile, ...]


class StoreState(Reply, title="StoreView"):
    """The state of a store for readers. Offsets are physical, in bytes."""

    writer: Annotated[
        str,
        Field(
            description="alive; recovering: it opens the store; down: no new messages arrive, "
            "stored ones are served."
        ),
    ]
    health: Annotated[str, Field(description="Health of the store, as its last writer saw it.")]
    store_id: str
    shard: int
    epoch: int
    min_offset: int
    max_offset: int
    flushed_offset: Annotated[int, Field(description="Everything below is on disk.")]
    dispatched_offset: Annotated[int, Field(description="Everything below is in its queues.")]
    index_complete: bool
    shards: Annotated[
        tuple[ShardEntry, ...],
        Field(description="The configured shards; empty without a list."),
    ]
