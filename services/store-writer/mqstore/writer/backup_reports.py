"""The last results of backups: kept beside the store, served, and published as metrics and events.

The commands ``mqstore backup create`` and ``verify`` report them with ``--report``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import Problem
from mqstore.wire import backup_reports as operations
from mqstore.wire.backup_reports import BackupReport, BackupResult, NewBackupResult
from mqstore.writer.kept_report import KeptReport
from mqstore.writer.service import WriterService

KIND: Final = "backup"
_NONE: Final = BackupReport(created=None, whole=None, verified=None)


class BackupReports(Collector):
    """Serves the results, and collects their metrics. Used on the event loop."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._kept = KeptReport(service, BackupReport, lambda paths: paths.backup_report)
        self._lock = asyncio.Lock()
        """Two commands that end at one time replace the file one after the other."""

    def add(self, api: Api) -> None:
        """Register the routes and the metrics with ``api``."""
        Endpoint(operations.BACKUP_REPORT, self.report).add(api)
        Endpoint(operations.PUT_BACKUP_RESULT, self.put_result).add(api)
        api.metrics.registry.register(self)

    async def report(self) -> BackupReport:
        """The last creation of a backup, the last one that is whole, and the last verification."""
        return self._kept.get() or _NONE

    async def put_result(self, result: NewBackupResult) -> BackupReport:
        """Replaces the last result of this action. Publishes an event `backup`."""
        async with self._lock:
            report = add_result(self._kept.get() or _NONE, result)
            await self._kept.put(report)
        self._service.events.publish(
            KIND,
            action=result.action,
            isWhole=result.is_whole,
            backup=result.backup,
            endOffset=result.end_offset,
            place=result.place,
            error=result.error,
        )
        return report

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the last results."""
        try:
            report = self._kept.get() or _NONE
        except Problem:  # the store is not open
            report = _NONE
        yield from _of(report)


def add_result(report: BackupReport, result: BackupResult) -> BackupReport:
    """Return the report with a new result."""
    found = BackupResult.model_validate(result.model_dump())
    if found.action == "verify":
        return report.model_copy(update={"verified": found})
    whole = found if found.is_whole else report.whole
    return report.model_copy(update={"created": found, "whole": whole})


def _of(report: BackupReport) -> Iterable[Metric]:
    created, whole, verified = report.created, report.whole, report.verified
    yield GaugeMetricFamily(
        "mqstore_backup_whole_seconds",
        "Unix time at which the last whole backup began; 0: none was reported.",
        value=0 if whole is None else whole.began_ms / 1000,
    )
    yield GaugeMetricFamily(
        "mqstore_backup_failed",
        "1 if the last backup that was reported failed, or is not whole.",
        value=float(created is not None and not created.is_whole),
    )
    yield GaugeMetricFamily(
        "mqstore_backup_verified_seconds",
        "Unix time at which the last verification of backups began; 0: none was reported.",
        value=0 if verified is None else verified.began_ms / 1000,
    )
    yield GaugeMetricFamily(
        "mqstore_backup_verification_failed",
        "1 if the last verification of backups that was reported failed, or found damage.",
        value=float(verified is not None and not verified.is_whole),
    )
    if whole is not None:
        yield GaugeMetricFamily(
            "mqstore_backup_end_offset",
            "Physical offset behind the last message of the last whole backup.",
            value=whole.end_offset or 0,
        )
        yield GaugeMetricFamily(
            "mqstore_backup_copied_bytes",
            "Bytes that the last whole backup added to its place.",
            value=whole.copied_bytes,
        )
        yield GaugeMetricFamily(
            "mqstore_backup_duration_seconds",
            "Time that the last whole backup took.",
            value=(whole.ended_ms - whole.began_ms) / 1000,
        )
