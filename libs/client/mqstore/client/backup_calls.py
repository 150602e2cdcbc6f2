"""Requests about the results of backups, as values that both clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore.client import contract
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call

if TYPE_CHECKING:
    from mqstore.wire.backup_reports import BackupReport, BackupResult


def backup_report() -> Call[BackupReport]:
    """Return the last results of backups."""
    return call(contract.backup_reports.BACKUP_REPORT)


def put_backup_result(result: BackupResult) -> Call[BackupReport]:
    """Store the result of a backup; for the command that made it (role system)."""
    return call(contract.backup_reports.PUT_BACKUP_RESULT, json=result.model_dump(by_alias=True))


class BackupCalls:
    """Methods of both clients."""

    backup_report = sends(backup_report)
    put_backup_result = sends(put_backup_result)
