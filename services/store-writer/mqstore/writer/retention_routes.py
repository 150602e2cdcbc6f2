"""Routes of retention: the plan, the manual trigger, pins, and the archive's position."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Path as PathParameter
from fastapi import Query, Response

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.storage.errors import PinUnknown
from mqstore.storage.retention import PIN_NAME, RetentionPlan
from mqstore.wire import retention as operations
from mqstore.wire.retention import Archive, ArchiveMark, ArchiveSpec, Pin, Pins, PinSpec
from mqstore.writer.service import WriterService

SEGMENTS_DEFAULT: Final = 1_000

PinName = Annotated[
    str,
    PathParameter(
        pattern=f"^{PIN_NAME.pattern}$",
        description="Letters, digits, `.` `_` `-`; at most 100.",
        openapi_examples={"a backup": {"value": "backup-1"}},
    ),
]


class RetentionRoutes:
    """Serves retention: shows what it deletes, starts it, and keeps ranges from it."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.RETENTION, self.retention_plan, documented=RetentionPlan).add(api)
        Endpoint(operations.RUN_RETENTION, self.run_retention, documented=RetentionPlan).add(api)
        Endpoint(operations.PINS, self.pins).add(api)
        Endpoint(operations.PIN, self.pin).add(api)
        Endpoint(operations.PUT_PIN, self.put_pin).add(api)
        Endpoint(operations.REMOVE_PIN, self.remove_pin).add(api)
        Endpoint(operations.ARCHIVE, self.archive).add(api)
        Endpoint(operations.PUT_ARCHIVE, self.put_archive).add(api)
        Endpoint(operations.END_ARCHIVE, self.end_archive).add(api)

    async def retention_plan(
        self, wanted: Annotated[operations.PlanParameters, Query()]
    ) -> RetentionPlan:
        """The plan of retention; nothing changes. It deletes the oldest segments first; a segment
        that it keeps also keeps all behind it."""
        return await asyncio.to_thread(self._service.store.retention.plan, wanted.limit)

    async def run_retention(self) -> RetentionPlan:
        """Deletes files older than fileReservedTime in the background, at any hour. The reply has
        the plan; poll `GET /v1/store/retention` for the progress. Like RocketMQ's manual deletion
        it lasts for 20 rounds."""
        return await asyncio.to_thread(self._service.store.run_retention)

    async def pins(self) -> Pins:
        """All pins."""
        found = self._service.store.retention.pins()
        return Pins(pins=tuple([Pin.model_validate(each) for each in found]))

    async def pin(self, name: PinName) -> Pin:
        """One pin."""
        return Pin.model_validate(self._service.store.retention.pin(name))

    async def put_pin(self, name: PinName, spec: PinSpec, response: Response) -> Pin:
        """Puts a lease that ends `leaseSeconds` from now unless it is put again; 201 if it is new.
        Retention keeps the range until the disk is fuller than keepDiskCeilingRatio."""
        retention = self._service.store.retention
        try:
            retention.pin(name)
        except PinUnknown:
            response.status_code = HTTPStatus.CREATED
        found = await asyncio.to_thread(
            retention.put_pin,
            name,
            spec.from_offset,
            spec.to_offset,
            lease_s=spec.lease_seconds,
            why=spec.why,
        )
        return Pin.model_validate(found)

    async def remove_pin(self, name: PinName) -> None:
        """Removes a pin; retention may then delete its range."""
        await asyncio.to_thread(self._service.store.retention.remove_pin, name)

    async def archive(self) -> Archive:
        """The position of the archive; null if retention waits for none."""
        return Archive.model_validate({"archive": self._service.store.retention.archive})

    async def put_archive(self, spec: ArchiveSpec) -> Archive:
        """Reports the position of the archive job. From the first report on, retention keeps the
        log behind `offset`, until the disk is fuller than keepDiskCeilingRatio or the archive
        ends."""
        retention = self._service.store.retention
        mark = await asyncio.to_thread(retention.advance_archive, spec.offset, spec.place)
        return Archive(archive=ArchiveMark.model_validate(mark))

    async def end_archive(self) -> None:
        """Ends the archive: retention no longer waits for it. Succeeds without an archive too."""
        await asyncio.to_thread(self._service.store.retention.end_archive)
