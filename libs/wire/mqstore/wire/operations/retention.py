"""Operations of retention: the plan, pins, the archive, expiry reports."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import reports
from mqstore.wire.examples import stores as examples
from mqstore.wire.operation import Nothing, Operation, Role, Target, json_of
from mqstore.wire.reports import ExpiryReport, ExpirySummary
from mqstore.wire.retention import Archive, ArchiveSpec, Pin, Pins, PinSpec, Retention

_PATH: Final = "/v1/store/retention"
_PIN: Final = "/v1/store/pins/{name}"
_ARCHIVE: Final = "/v1/store/archive"
_REPORT: Final = "/v1/reports/expiry"

RETENTION: Final = Operation(
    name="retention_plan",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="What would be deleted, when and why",
    tag="retention",
    reply=Retention,
    example=examples.RETENTION,
)
RUN_RETENTION: Final = Operation(
    name="run_retention",
    targets=(Target.WRITER,),
    method="POST",
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
