"""Retention: the plan of deletions, and what keeps the log from it: pins and the archive."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, model_validator

from mqstore.wire import problems
from mqstore.wire.base import ComponentRequest, Offset, Reply, Request
from mqstore.wire.examples import reports
from mqstore.wire.examples import stores as examples
from mqstore.wire.limits import PIN_LEASE_MAX_S
from mqstore.wire.operation import Nothing, Operation, Role, Target, json_of
from mqstore.wire.parameters import Parameters
from mqstore.wire.reports import ExpiryReport, ExpirySummary


class ArchiveMark(Reply):
    """The progress of the archive. Offsets are physical, times milliseconds since the epoch."""

    offset: Annotated[int, Field(description="Everything below is archived, or was deleted.")]
    place: Annotated[str, Field(description="Place of the archive, as its job gave it.")]
    since_ms: Annotated[int, Field(description="When retention began to wait for it.")]
    marked_ms: int


class Pin(Reply):
    """A lease of a range of the log. Offsets are physical, times milliseconds since the epoch."""

    name: str
    from_offset: Annotated[int, Field(description="The first byte that is needed.")]
    to_offset: Annotated[int | None, Field(description="Behind the last one; null: to the end.")]
    why: Annotated[str, Field(description="Reason, as its owner gave it.")]
    created_ms: int
    expires_ms: Annotated[int, Field(description="Ends then, unless put again before.")]


class ArchiveSpec(ComponentRequest):
    """The progress of an archive."""

    offset: Annotated[Offset, Field(description="Everything below is archived.")]
    place: Annotated[str, Field(min_length=1, max_length=1_000, description="Where.")]

    model_config = ConfigDict(
        json_schema_extra={"example": {"offset": 1073741824, "place": "s3://archive/orders"}},
    )


class Archive(Reply, title="ArchiveView"):
    """The archive that retention waits for; null: none."""

    archive: ArchiveMark | None


class PinSpec(Request):
    """A range of the log to keep, and for how long."""

    from_offset: Offset
    to_offset: Annotated[
        Offset | None, Field(description="Behind the last byte; null: the end.")
    ] = None
    lease_seconds: Annotated[int, Field(ge=1, le=PIN_LEASE_MAX_S, strict=True)] = 300
    why: Annotated[str, Field(max_length=200, description="Shown in the plan.")] = ""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"fromOffset": 0, "leaseSeconds": 300, "why": "nightly backup"}
        },
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> PinSpec:
        if self.to_offset is not None and self.to_offset <= self.from_offset:
            raise ValueError("the range is empty: toOffset must be greater than fromOffset")
        return self


class Pins(Reply, title="PinList"):
    """The pins, by name."""

    pins: tuple[Pin, ...]


class Retention(Reply):
    """The plan of deletions: what, when and why. The OpenAPI document has the fields."""

    made_ms: int
    rule: dict[str, Any]
    deletes: Annotated[
        bool, Field(description="False: this process deletes nothing, whatever the rule is.")
    ] = True
    oldest_ms: Annotated[
        int | None, Field(description="When the oldest message was stored; null: not known.")
    ] = None
    triggers: tuple[str, ...]
    next_hour_ms: int
    puts_refused: bool
    puts_refused_why: str | None = None
    holds_honoured: bool
    volumes: tuple[dict[str, Any], ...]
    holds: tuple[dict[str, Any], ...]
    segments: tuple[dict[str, Any], ...]
    bytes_to_go: int


_PATH: Final = "/v1/store/retention"
_PIN: Final = "/v1/store/pins/{name}"
_ARCHIVE: Final = "/v1/store/archive"
_REPORT: Final = "/v1/reports/expiry"


class PlanParameters(Parameters):
    """The part of a plan."""

    limit: Annotated[
        int,
        Field(
            ge=1, le=100_000, description="Maximum number of segments in the plan, oldest first."
        ),
    ] = 1_000


RETENTION: Final = Operation(
    name="retention_plan",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="What would be deleted, when and why",
    tag="retention",
    query=PlanParameters,
    reply=Retention,
    example=examples.RETENTION,
)
RUN_RETENTION: Final = Operation(
    name="run_retention",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":run",
    role=Role.ADMIN,
    summary="Delete now what has expired",
    tag="retention",
    reply=Retention,
    example=examples.RETENTION,
    status=202,
    problems=(problems.STORE_READ_ONLY,),
)
PINS: Final = Operation(
    name="pins",
    targets=(Target.WRITER,),
    path="/v1/store/pins",
    role=Role.CONSUME,
    summary="All pins",
    tag="retention",
    reply=Pins,
    example=examples.PINS,
)
PIN: Final = Operation(
    name="pin",
    targets=(Target.WRITER,),
    path=_PIN,
    role=Role.CONSUME,
    summary="One pin",
    tag="retention",
    reply=Pin,
    example=examples.PIN,
    problems=(problems.PIN_UNKNOWN,),
)
PUT_PIN: Final = Operation(
    name="put_pin",
    targets=(Target.WRITER,),
    method="PUT",
    path=_PIN,
    role=Role.ADMIN,
    summary="Pin a range, or go on with it",
    tag="retention",
    request=PinSpec,
    reply=Pin,
    example=examples.PIN,
    contents={201: ("Begun.", json_of(Pin))},
    problems=(problems.PIN_REFUSED, *problems.WITH_BODY),
)
REMOVE_PIN: Final = Operation(
    name="remove_pin",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_PIN,
    role=Role.ADMIN,
    summary="End a pin",
    tag="retention",
    reply=Nothing,
    status=204,
    problems=(problems.PIN_UNKNOWN,),
)
ARCHIVE: Final = Operation(
    name="archive",
    targets=(Target.WRITER,),
    path=_ARCHIVE,
    role=Role.CONSUME,
    summary="Up to where the log is archived",
    tag="retention",
    reply=Archive,
    example=examples.ARCHIVE,
)
PUT_ARCHIVE: Final = Operation(
    name="put_archive",
    targets=(Target.WRITER,),
    method="PUT",
    path=_ARCHIVE,
    role=Role.SYSTEM,
    summary="Say up to where the log is archived",
    tag="retention",
    request=ArchiveSpec,
    reply=Archive,
    example=examples.ARCHIVE,
    problems=(problems.ARCHIVE_REFUSED, *problems.WITH_BODY),
)
END_ARCHIVE: Final = Operation(
    name="end_archive",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_ARCHIVE,
    role=Role.ADMIN,
    summary="Wait for no archive any more",
    tag="retention",
    reply=Nothing,
    status=204,
)
EXPIRY_REPORT: Final = Operation(
    name="report",
    targets=(Target.WRITER,),
    path=_REPORT,
    role=Role.CONSUME,
    summary="What the last expiry report said",
    tag="retention",
    reply=ExpiryReport,
    example={"report": reports.EXPIRY},
)
PUT_EXPIRY_REPORT: Final = Operation(
    name="put_report",
    targets=(Target.WRITER,),
    method="PUT",
    path=_REPORT,
    role=Role.SYSTEM,
    summary="Hand in what an expiry report says",
    tag="retention",
    request=ExpirySummary,
    reply=ExpiryReport,
    example={"report": reports.EXPIRY},
    problems=problems.WITH_BODY,
)
