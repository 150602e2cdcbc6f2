"""query's operations on the files of the log, and on the store as readers see it."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import lookups as examples
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target
from mqstore.wire.segments import LogFiles, StoreState

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
