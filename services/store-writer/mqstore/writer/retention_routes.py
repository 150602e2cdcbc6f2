"""store-writer's routes of retention: the plan, the manual trigger, and pins."""

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
from mqstore.wire.operations import retention as operations
from mqstore.wire.retention import Archive, ArchiveMark, ArchiveSpec, Pin, Pins, PinSpec
from mqstore.writer.service import WriterService

SEGMENTS_DEFAULT: Final = 1_000
SEGMENTS_MAX: Final = 100_000

PinName = Annotated[
    str,
    PathParameter(
        pattern=f"^{PIN_NAME.pattern}$",
        description="Letters, digits, `.` `_` `-`; at most 100.",
        openapi_examples={"a backup": {"value": "backup-1"}},
    ),
]
SegmentLimit = Annotated[
    int, Query(ge=1, le=SEGMENTS_MAX, description="Of so many of the oldest segments.")
]
_PATH: Final = "/v1/store/retention"
_PIN_PATH: Final = "/v1/store/pins/{name}"
_ARCHIVE_PATH: Final = "/v1/store/archive"


class RetentionRoutes:
    """Deleting is the service's own business: these show it, start it, and keep it off."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.RETENTION, self.retention_plan, documented=RetentionPlan).add(api)
        Endpoint(operations.RUN_RETENTION, self.run_retention, documented=RetentionPlan).add(api)
        Endpoint(operations.PINS, self.pins).add(api)
        Endpoint(operations.PIN, self.pin).add(api)
        Endpoint(operations.PUT_PIN, self.put_pin).add(api)
        Endpoint(operations.REMOVE_PIN, self.remove_pin).add(api)
        Endpoint(operations.ARCHIVE, self.archive).add(api)
        Endpoint(operations.PUT_ARCHIVE, self.put_archive).add(api)
        Endpoint(operations.END_ARCHIVE, self.end_archive).add(api)

    async def retention_plan(self, limit: SegmentLimit = SEGMENTS_DEFAULT) -> RetentionPlan:
        """Changes nothing. Segments go oldest first; one that stays keeps all behind it."""
        return await asyncio.to_thread(self._service.store.retention.plan, limit)

    async def run_retention(self) -> RetentionPlan:
        """Whatever the hour, files go that are older than fileReservedTime, in the background: the
        answer is the plan; look again at `GET /v1/store/retention`. As RocketMQ's manual deletion
        it lasts for 20 rounds."""
        return await asyncio.to_thread(self._service.store.run_retention)

    async def pins(self) -> Pins:
        found = self._service.store.retention.pins()
        return Pins(pins=tuple([Pin.model_validate(each) for each in found]))

    async def pin(self, name: PinName) -> Pin:
        return Pin.model_validate(self._service.store.retention.pin(name))

    async def put_pin(self, name: PinName, spec: PinSpec, response: Response) -> Pin:
        """A lease: it ends `leaseSeconds` from now unless it is put again. 201 when it is new. The
        range is kept from deletion until the disk is above keepDiskCeilingRatio."""
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
        await asyncio.to_thread(self._service.store.retention.remove_pin, name)

    async def archive(self) -> Archive:
        """Null where retention waits for no archive."""
        return Archive.model_validate({"archive": self._service.store.retention.archive})

    async def put_archive(self, spec: ArchiveSpec) -> Archive:
        """By the job that archives. What lies behind `offset` is kept from deletion, from the first
        time on, until the disk is above keepDiskCeilingRatio or the archive is ended."""
        retention = self._service.store.retention
        mark = await asyncio.to_thread(retention.advance_archive, spec.offset, spec.place)
        return Archive(archive=ArchiveMark.model_validate(mark))

    async def end_archive(self) -> None:
        """What is not archived goes as anything else; also where nothing waited."""
        await asyncio.to_thread(self._service.store.retention.end_archive)
