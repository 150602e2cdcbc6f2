"""store-writer's routes of the scrub: its progress and findings, a pass, and a repair."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Query

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.storage.recovery.report import RepairReport
from mqstore.storage.scrub.service import ScrubProgress
from mqstore.wire.examples import stores as examples
from mqstore.writer import control
from mqstore.writer.control import answers
from mqstore.writer.service import WriterService

_PATH: Final = "/v1/store/scrub"


class ScrubRoutes:
    """The log is compared with its block checksums, a little at a time."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        add = partial(control.add, tag="store")
        what = "What the disk has changed, and how far the look at it is"
        add(api, "GET", _PATH, self.progress, what, 200, answers(examples.SCRUB))
        begun = answers(examples.SCRUB, problems.STORE_READ_ONLY, status=HTTPStatus.ACCEPTED)
        add(api, "POST", _PATH + ":run", self.run, "Look now", HTTPStatus.ACCEPTED, begun)

        repaired = answers(
            examples.REPAIR,
            problems.STORE_READ_ONLY,
            problems.STORE_FAILED,
            problems.REPAIR_REFUSED,
        )
        add(api, "POST", _PATH + ":repair", self.repair, "Repair the log", 200, repaired)

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

    async def progress(self) -> ScrubProgress:
        """Each finding names the record, the field and the queue that it touches."""
        return self._service.store.scrub.progress

    async def run(self) -> ScrubProgress:
        """A pass over all checksums begins, unless one runs, at scrubBytesPerSecond; look again at
        `GET /v1/store/scrub`."""
        return self._service.store.run_scrub()
