"""store-writer's routes of retention: the plan, the manual trigger, and pins."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Path as PathParameter
from fastapi import Query, Response

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import responses
from mqstore.storage.errors import PinUnknown
from mqstore.storage.retention.pins import NAME
from mqstore.storage.retention.plan import RetentionPlan
from mqstore.wire.examples import stores as examples
from mqstore.wire.retention import Archive, ArchiveMark, ArchiveSpec, Pin, Pins, PinSpec
from mqstore.writer import control
from mqstore.writer.control import answers
from mqstore.writer.service import WriterService

SEGMENTS_DEFAULT: Final = 1_000
SEGMENTS_MAX: Final = 100_000

PinName = Annotated[
    str,
    PathParameter(
        pattern=f"^{NAME.pattern}$",
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
    """Deleting is the service's own business: these show it, ask for it, and keep it off."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        _add = partial(control.add, tag="retention")
        planned = answers(examples.RETENTION)
        _add(
            api,
            "GET",
            _PATH,
            self.retention_plan,
            "What would be deleted, when and why",
            200,
            planned,
        )
        _add(
            api,
            "POST",
            _PATH + ":run",
            self.run_retention,
            "Delete now what has expired",
            HTTPStatus.ACCEPTED,
            answers(examples.RETENTION, problems.STORE_READ_ONLY, status=HTTPStatus.ACCEPTED),
        )
        _add(api, "GET", "/v1/store/pins", self.pins, "All pins", 200, answers(examples.PINS))
        pin = answers(examples.PIN, problems.PIN_UNKNOWN)
        _add(api, "GET", _PIN_PATH, self.pin, "One pin", 200, pin)
        put = answers(examples.PIN, problems.PIN_REFUSED, *problems.WITH_BODY)
        created: dict[int | str, Any] = {201: {"model": Pin, "description": "Begun."}}
        _add(
            api, "PUT", _PIN_PATH, self.put_pin, "Pin a range, or go on with it", 200, created | put
        )
        gone = responses(problems.PIN_UNKNOWN)
        _add(api, "DELETE", _PIN_PATH, self.remove_pin, "End a pin", HTTPStatus.NO_CONTENT, gone)
        self._add_archive(api)

    def _add_archive(self, api: Api) -> None:
        add = partial(control.add, api, tag="retention")
        shown = answers(examples.ARCHIVE)
        put = answers(examples.ARCHIVE, problems.ARCHIVE_REFUSED, *problems.WITH_BODY)
        what = "Up to where the log is archived"
        add("GET", _ARCHIVE_PATH, self.archive, what, 200, shown)
        what = "Say up to where the log is archived"
        add("PUT", _ARCHIVE_PATH, self.put_archive, what, 200, put, role=Role.SYSTEM)
        what = "Wait for no archive any more"
        add("DELETE", _ARCHIVE_PATH, self.end_archive, what, HTTPStatus.NO_CONTENT, {})

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
        mark = await asyncio.to_thread(retention.archived, spec.offset, spec.place)
        return Archive(archive=ArchiveMark.model_validate(mark))

    async def end_archive(self) -> None:
        """What is not archived goes as anything else; also where nothing waited."""
        await asyncio.to_thread(self._service.store.retention.end_archive)
