"""store-writer's routes of the scrub: its progress and findings, a pass, and a repair."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Query

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.storage.status import RepairReport
from mqstore.wire.operations import stores as operations
from mqstore.wire.stores import Scrub
from mqstore.writer.service import WriterService

_PATH: Final = "/v1/store/scrub"


class ScrubRoutes:
    """The log is compared with its block checksums, a little at a time."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.SCRUB, self.progress).add(api)
        Endpoint(operations.RUN_SCRUB, self.run).add(api)
        Endpoint(operations.REPAIR, self.repair, documented=RepairReport).add(api)

    async def repair(
        self,
        dry_run: Annotated[
            bool, Query(alias="dryRun", description="Only show what would be done.")
        ] = False,
    ) -> RepairReport:
        """All of the log below the durable watermark is read, without a pause. One changed word is
        put back where the checksum of its block proves what it was; a damaged record without such a
        proof gets a tombstone. The damaged bytes are kept in quarantine. What was done is also in
        `repairs` of `GET /v1/store/scrub`."""
        store = self._service.store
        if dry_run:
            return RepairReport(plan=await asyncio.to_thread(store.plan_repairs), done=False)
        return await asyncio.to_thread(store.repair_damage)

    async def progress(self) -> Scrub:
        """Each finding names the record, the field and the queue that it touches."""
        return Scrub.model_validate(self._service.store.scrub.progress)

    async def run(self) -> Scrub:
        """A pass over all checksums begins, unless one runs, at scrubBytesPerSecond; look again at
        `GET /v1/store/scrub`."""
        return Scrub.model_validate(self._service.store.run_scrub())
