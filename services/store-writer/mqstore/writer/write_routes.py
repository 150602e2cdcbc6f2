"""Routes that pause writes, and that flush stored messages to disk."""

from __future__ import annotations

import asyncio

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire import stores as operations
from mqstore.wire.stores import FlushReply, PutRefusal, Writes, WritesSpec
from mqstore.writer.service import WriterService


class WriteRoutes:
    """Serves flushes and pauses, which precede the copy of a volume or the move of a store."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.FLUSH, self.flush).add(api)
        Endpoint(operations.WRITES, self.writes).add(api)
        Endpoint(operations.PUT_WRITES, self.put_writes).add(api)

    async def flush(self) -> FlushReply:
        """Flushes the log: replies once all messages stored before are on disk."""
        service = self._service
        store = service.store
        await service.durability.wait(store.log.max_offset)
        return FlushReply(durable_offset=store.log.flushed_offset)

    async def writes(self) -> Writes:
        """Whether produce is paused or refused, and why."""
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
        """Pauses or resumes writes. During a pause every produce is refused with 503
        `writes-paused` and the reason. Delayed messages that were stored before are delivered, and
        all else continues. A pause outlives restarts."""
        pause = self._service.store.write_pause
        if spec.paused:
            await asyncio.to_thread(pause.begin, spec.reason or "paused by an administrator")
        else:
            await asyncio.to_thread(pause.end)
        return await self.writes()
