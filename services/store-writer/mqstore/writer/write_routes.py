"""store-writer's routes that hold writes back, and that bring what was written to disk."""

from __future__ import annotations

import asyncio
from typing import Final

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.problems import responses
from mqstore.wire.stores import Flushed, PutRefusal, Writes, WritesSpec
from mqstore.writer import control
from mqstore.writer.service import WriterService

_PATH: Final = "/v1/store/writes"


class WriteRoutes:
    """For an administrator, before a volume is copied or a store is moved."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        flushed = responses(problems.FLUSH_TIMEOUT, problems.STORE_FAILED)
        summary = "Bring everything to disk"
        control.add(api, "POST", "/v1/store:flush", self.flush, summary, 200, flushed, tag="store")
        summary = "Whether messages are taken"
        control.add(api, "GET", _PATH, self.writes, summary, 200, {}, tag="store")
        put = responses(*problems.WITH_BODY)
        summary = "Pause writes, or let them go on"
        control.add(api, "PUT", _PATH, self.put_writes, summary, 200, put, tag="store")

    async def flush(self) -> Flushed:
        """Answered when all that was stored before is on disk, as a sync produce is."""
        service = self._service
        store = service.store
        await service.durability.wait(store.log.max_offset)
        return Flushed(durable_offset=store.log.flushed_offset)

    async def writes(self) -> Writes:
        store = self._service.store
        pause, refusal = store.write_pause.current, store.put_refusal
        return Writes(
            paused=pause is not None,
            reason=None if pause is None else pause.reason,
            since_ms=None if pause is None else pause.since_ms,
            taken=refusal is None and self._service.shards.joining.reason is None,
            refused=None if refusal is None else PutRefusal.model_validate(refusal),
        )

    async def put_writes(self, spec: WritesSpec) -> Writes:
        """While paused every produce is answered 503 `writes-paused` with the reason; delayed
        messages that were taken before are delivered, and all else goes on. A pause outlives
        restarts."""
        pause = self._service.store.write_pause
        if spec.paused:
            await asyncio.to_thread(pause.begin, spec.reason or "paused by an administrator")
        else:
            await asyncio.to_thread(pause.end)
        return await self.writes()
