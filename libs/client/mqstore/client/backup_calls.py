"""Requests about the results of backups, as values that both clients send."""

from __future__ import annotations

from mqstore.client.requests import Call, call
from mqstore.wire.backup_reports import (
    BACKUP_REPORT,
    PUT_BACKUP_RESULT,
    BackupReport,
    BackupResult,
)


def backup_report() -> Call[BackupReport]:
    """Return the last results of backups."""
    return call(BACKUP_REPORT)


def put_backup_result(result: BackupResult) -> Call[BackupReport]:
    """Store the result of a backup; for the command that made it (role system)."""
    return call(PUT_BACKUP_RESULT, json=result.model_dump(by_alias=True))
