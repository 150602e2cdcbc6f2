"""The results of backups, as the commands report them to store-writer."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import Reply
from mqstore.wire.examples import reports as examples
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.reports import Name, Number


class BackupResult(Reply):
    """The result of one command: a backup that was created or verified, or the reason why not."""

    action: Literal["create", "verify"]
    place: Annotated[Name, Field(description="Of the backups, without credentials.")]
    began_ms: Annotated[Number, Field(description="Milliseconds since the epoch.")]
    ended_ms: Number
    is_whole: Annotated[
        bool,
        Field(strict=True, description="It was done, and no part of the backup is damaged."),
    ]
    backup: Annotated[Name | None, Field(description="Id; null: no backup was read or made.")]
    end_offset: Annotated[
        Number | None, Field(description="Physical offset behind the last message of the backup.")
    ]
    copied_bytes: Annotated[Number, Field(description="That it added to the place.")]
    error: Annotated[Name, Field(description="Why it is not whole; else empty.")]


class NewBackupResult(BackupResult):
    """A result, as a command reports it."""

    model_config = ConfigDict(
        extra="ignore", defer_build=False, json_schema_extra={"example": examples.BACKUP}
    )


class BackupReport(Reply):
    """The last results of backups. Null: none was reported."""

    created: Annotated[BackupResult | None, Field(description="The last creation.")]
    whole: Annotated[BackupResult | None, Field(description="The last creation of a whole backup.")]
    verified: Annotated[BackupResult | None, Field(description="The last verification.")]


_PATH: Final = "/v1/reports/backup"

BACKUP_REPORT: Final = Operation(
    name="backup_report",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="The last results of backups",
    tag="retention",
    reply=BackupReport,
    example=examples.BACKUPS,
)
PUT_BACKUP_RESULT: Final = Operation(
    name="put_backup_result",
    targets=(Target.WRITER,),
    method="PUT",
    path=_PATH,
    role=Role.SYSTEM,
    summary="Report the result of a backup",
    tag="retention",
    request=NewBackupResult,
    reply=BackupReport,
    example=examples.BACKUPS,
    problems=problems.WITH_BODY,
)
