"""An index rebuild beside the writer: a lease, a plan, parts as streams, publication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mqstore.wire import problems
from mqstore.wire.examples import rebuilds as examples
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target
from mqstore.wire.rebuilds import (
    IndexPart,
    IndexRebuild,
    IndexRebuilds,
    LeaseSpec,
    PublishedIndex,
    RebuildPlan,
    RebuildSpec,
)

_PATH: Final = "/v1/index-rebuilds"
_ONE: Final = _PATH + "/{rebuild}"
_REFUSED: Final = (problems.INDEX_REBUILD_UNKNOWN, problems.INDEX_REBUILD_REFUSED)
_STREAMED: Final = (
    *_REFUSED,
    problems.DISK_FULL,
    problems.INDEX_REBUILD_INVALID,
    *problems.READ_ONLY_KINDS,
)
_REBUILD: Final[Mapping[str, Any]] = {
    "name": "rebuild",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": examples.RUNNING["id"],
}
_PART: Final[Mapping[str, Any]] = {
    "name": "part",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0},
    "example": 0,
}

REBUILDS: Final = Operation(
    name="rebuilds",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="The index rebuild that runs, and the last one",
    tag="index",
    reply=IndexRebuilds,
    example={"running": examples.RUNNING, "last": examples.ENDED},
)
BEGIN_REBUILD: Final = Operation(
    name="begin",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH,
    role=Role.SYSTEM,
    summary="Begin to rebuild the index",
    tag="index",
    request=RebuildSpec,
    reply=IndexRebuild,
    example=examples.RUNNING,
    status=201,
    problems=(*_REFUSED, problems.INDEX_REBUILD_RUNNING, *problems.WITH_BODY),
)
RENEW_REBUILD: Final = Operation(
    name="renew",
    targets=(Target.WRITER,),
    method="PUT",
    path=_ONE + "/lease",
    role=Role.SYSTEM,
    summary="Go on with the lease of a rebuild",
    tag="index",
    request=LeaseSpec,
    reply=IndexRebuild,
    example=examples.RUNNING,
    problems=(*_REFUSED, *problems.WITH_BODY),
)
PUBLISH_REBUILD: Final = Operation(
    name="publish",
    targets=(Target.WRITER,),
    method="POST",
    path=_ONE + ":publish",
    role=Role.SYSTEM,
    summary="Let the new files be the index",
    tag="index",
    reply=PublishedIndex,
    example=examples.PUBLISHED,
    problems=(*_REFUSED, problems.STAGING_DAMAGED, *problems.WITH_BODY),
)
GIVE_UP_REBUILD: Final = Operation(
    name="give_up",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_ONE,
    role=Role.SYSTEM,
    summary="Give a rebuild up",
    tag="index",
    reply=Nothing,
    status=204,
    problems=_REFUSED,
)
PLAN_REBUILD: Final = Operation(
    name="index_rebuild_plan",
    targets=(Target.WRITER,),
    method="PUT",
    path=_ONE + "/plan",
    role=Role.SYSTEM,
    summary="Say which index files a rebuild makes",
    tag="index",
    description="The files of a sequential build of the log from `from` to `to`, derived from "
    "counts. They are reserved on disk before it is answered; the same plan again changes nothing.",
    parameters=(_REBUILD,),
    request=RebuildPlan,
    request_example=examples.PLAN,
    reply=IndexRebuild,
    example=examples.RUNNING,
    problems=_STREAMED,
)
SEND_PART: Final = Operation(
    name="index_rebuild_part",
    targets=(Target.WRITER,),
    method="PUT",
    path=_ONE + "/parts/{part}",
    role=Role.SYSTEM,
    summary="Send one part's items",
    tag="index",
    description="A stream of any length: frames of start 8, length 4, CRC-32C 4 (big-endian) and "
    "`length` bytes of items, 24 bytes each, chunks in the order of the log; the last frame has "
    "start 2^64-1 and the number of all items, 8 bytes. A part that is sent again begins anew.",
    parameters=(_REBUILD, _PART),
    request_content=BYTES,
    reply=IndexPart,
    example={"items": 1500, "slots": 1400},
    problems=_STREAMED,
)
