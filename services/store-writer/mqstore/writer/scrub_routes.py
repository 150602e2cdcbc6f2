"""Routes of the scrub: its progress and findings, a pass, and a repair."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.storage.status import RepairReport
from mqstore.wire import stores as operations
from mqstore.wire.stores import Scrub
from mqstore.writer.service import WriterService


class ScrubRoutes:
    """Serves the scrub, which compares the log with its block checksums."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.SCRUB, self.progress).add(api)
        Endpoint(operations.RUN_SCRUB, self.run, is_guarded=False).add(api)
        Endpoint(operations.REPAIR, self.repair, documented=RepairReport).add(api)

    async def repair(self, wanted: Annotated[operations.RepairParameters, Query()]) -> RepairReport:
        """Reads all of the log below the durable watermark without a pause. If the checksum of a
        block proves the value of one changed word, the word is restored. Any other damaged record
        becomes a tombstone. The damaged bytes are kept in quarantine. `repairs` of
        `GET /v1/store/scrub` lists the repairs too."""
        store = self._service.store
        if wanted.dry_run:
            return RepairReport(plan=await asyncio.to_thread(store.plan_repairs), done=False)
        return await asyncio.to_thread(store.repair_damage)

    async def progress(self) -> Scrub:
        """Progress and findings. Each finding names the record, the field and the queue that it
        touches."""
        return Scrub.model_validate(self._service.store.scrub.progress)

    async def run(self) -> Scrub:
        """Starts a pass over all checksums at scrubBytesPerSecond, unless one runs. Poll
        `GET /v1/store/scrub` for its progress."""
        return Scrub.model_validate(self._service.store.run_scrub())
