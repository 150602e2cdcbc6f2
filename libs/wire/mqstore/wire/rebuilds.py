"""A rebuild of the index while the writer runs. Offsets are physical, times milliseconds since the
epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import ComponentRequest, Reply
from mqstore.wire.examples import rebuilds as examples
from mqstore.wire.limits import REBUILD_LEASE_MAX_S
from mqstore.wire.operation import BYTES, Nothing, Operation, Role, Target

OWNER_MAX: Final = 200
PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
TTL_DEFAULT_S: Final = 60

Lease = Annotated[
    int,
    Field(ge=1, le=REBUILD_LEASE_MAX_S, strict=True, description="Seconds that the lease lasts."),
]


class RebuildSpec(ComponentRequest):
    """The owner of a rebuild; the other fields must match the store's own, if they are given."""

    owner: Annotated[str, Field(min_length=1, max_length=OWNER_MAX, pattern=PRINTABLE)]
    ttl_seconds: Lease = TTL_DEFAULT_S
    format: Literal["4.9", "5.x"] | None = None
    hash_slots: Annotated[int | None, Field(ge=1, strict=True)] = None
    index_num: Annotated[int | None, Field(ge=2, strict=True)] = None
    disk_ratio: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            strict=True,
            description="Percent of the volume that staging may fill, where that is less than"
            " diskMaxUsedSpaceRatio.",
        ),
    ] = None

    model_config = ConfigDict(
        json_schema_extra={"example": {"owner": examples.RUNNING["owner"], "ttlSeconds": 60}}
    )


class LeaseSpec(ComponentRequest):
    """A renewal of the lease."""

    ttl_seconds: Lease = TTL_DEFAULT_S

    model_config = ConfigDict(json_schema_extra={"example": {"ttlSeconds": 60}})


class FilePlan(ComponentRequest):
    """A file of the index, as a sequential build creates it: its items, first and last."""

    first: Annotated[int, Field(description="Items of all files before it.")]
    items: int
    begin: Annotated[
        tuple[int, int], Field(description="Physical offset and store time of its first item.")
    ]
    end: Annotated[tuple[int, int], Field(description="The same of its last one.")]
    carried_ms: Annotated[
        int, Field(description="Store time of the last item before, 0 without one.")
    ]

    model_config = ConfigDict(strict=True)


class RebuildPlan(ComponentRequest):
    """The files of a rebuild, and the chunks of the log that their items come from."""

    parts: Annotated[
        int,
        Field(description="Ranges of slots that are sent separately: slot * parts // hashSlots."),
    ]
    files: list[FilePlan]
    starts: Annotated[
        list[int], Field(description="Physical offset of each chunk of the log, ascending.")
    ]
    firsts: Annotated[
        list[int],
        Field(description="The number of each chunk's first item among all, and their count."),
    ]

    model_config = ConfigDict(strict=True)


class SegmentRange(Reply):
    """The range of a file of the log that an index rebuild covers; physical offsets."""

    name: str
    start: int
    end: int


class IndexRebuild(Reply, title="RebuildView"):
    """A rebuild of the index that runs."""

    id: str
    owner: Annotated[str, Field(description="Name of the job, as it was given.")]
    shard: str
    store_id: str
    format: str
    tags: Annotated[bool, Field(description="Whether TAGS are indexed.")]
    hash_slots: int
    index_num: int
    from_offset: Annotated[int, Field(alias="from", description="The first byte of the log.")]
    to_offset: Annotated[
        int, Field(alias="to", description="End of the range; from here the writer indexes.")
    ]
    segments: tuple[SegmentRange, ...]
    since_ms: int
    expires_ms: Annotated[int, Field(description="Discarded then, unless the lease goes on.")]
    disk_ratio: Annotated[int, Field(description="Percent of the volume that staging may fill.")]
    items: Annotated[int, Field(description="Items received in complete parts.")] = 0
    parts: Annotated[int, Field(description="Complete parts.")] = 0
    parts_planned: int = 0


class EndedIndexRebuild(Reply, title="RebuildEnded"):
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


class IndexRebuilds(Reply, title="RebuildList"):
    """The rebuild in progress, and the last one since the writer opened the store; or null."""

    running: IndexRebuild | None
    last: EndedIndexRebuild | None


class IndexPart(Reply, title="PartReply"):
    """A complete part."""

    items: int
    slots: Annotated[int, Field(description="Slots in use.")]


class PublishedIndex(Reply, title="Published"):
    """The names of the new index files, and of the files that they replaced."""

    id: str
    published: tuple[str, ...]
    replaced: tuple[str, ...]
    items: int
    bytes: Annotated[int, Field(description="Of the new files, as far as they are used.")]


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
