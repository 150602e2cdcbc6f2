"""The files of the commit log, and the store's bounds, as readers see them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Reply
from mqstore.wire.examples import lookups as examples
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target
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
            description="alive; recovering: it opens the store; unresponsive: it has stood still "
            "for 5 s; down: no new messages arrive, stored ones are served."
        ),
    ]
    health: Annotated[str, Field(description="Health of the store, as its last writer saw it.")]
    store_id: str
    shard: int
    epoch: int
    min_offset: int
    max_offset: Annotated[int, Field(description="The readable end of the log.")]
    end_offset: Annotated[
        int,
        Field(
            description="The end of the log: above `maxOffset` where readers see what is confirmed."
        ),
    ]
    confirmed_offset: Annotated[
        int,
        Field(
            description="All copies in sync have everything below on their disks; 0 without copies."
        ),
    ]
    in_sync: Annotated[
        int, Field(description="Copies in sync, the leader included; 0 without copies.")
    ]
    behind_bytes: Annotated[
        int | None,
        Field(
            description="Of a follower: bytes of its leader's log that are known of, and not here; "
            "null in a leader."
        ),
    ]
    flushed_offset: Annotated[int, Field(description="Everything below is on disk.")]
    dispatched_offset: Annotated[int, Field(description="Everything below is in its queues.")]
    index_complete: bool
    shards: Annotated[
        tuple[ShardEntry, ...],
        Field(description="The configured shards; empty without a list."),
    ]


STORE_STATE: Final = Operation(
    name="store",
    targets=(Target.QUERY,),
    path="/v1/store",
    role=Role.CONSUME,
    summary="The store's bounds, and whether its writer lives",
    tag="segments",
    reply=StoreState,
    example=examples.STORE,
)
LOG_FILES: Final = Operation(
    name="segments",
    targets=(Target.QUERY,),
    path="/v1/segments",
    role=Role.CONSUME,
    summary="The commit log's files, as far as they are on disk",
    tag="segments",
    reply=LogFiles,
    example=examples.SEGMENTS,
)
LOG_BYTES: Final = Operation(
    name="segment",
    targets=(Target.QUERY,),
    path="/v1/segments/{name}",
    role=Role.CONSUME,
    summary="Bytes of a segment",
    tag="segments",
    reply=Nothing,
    contents={
        200: ("All that is on disk.", BYTES),
        206: ("The first 16 MiB of `Range`.", BYTES),
    },
    problems=(
        problems.SEGMENT_UNKNOWN,
        problems.SEGMENT_EXPIRED,
        problems.EPOCH_CHANGED,
        problems.RANGE_NOT_SATISFIABLE,
    ),
)
