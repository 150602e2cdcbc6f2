"""Routes of the store's state: bounds, recovery, delay levels and segments."""

from __future__ import annotations

import asyncio

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.storage.status import RecoveryReport
from mqstore.wire import stores as operations
from mqstore.wire.shards import ShardEntry
from mqstore.wire.stores import DelayLevel, DelayLevels, Segment, Segments, Store, TimedMessages
from mqstore.writer.service import WriterService


class StoreRoutes:
    """Serves the state of the store."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.STORE, self.store).add(api)
        Endpoint(operations.RECOVERY, self.recovery, documented=RecoveryReport).add(api)
        Endpoint(operations.DELAYS, self.delays).add(api)
        Endpoint(operations.SEGMENTS, self.segments).add(api)

    async def store(self) -> Store:
        """Bounds, files, volume and shards of the store."""
        store = self._service.store
        found = Store.model_validate(await asyncio.to_thread(store.status))
        entries = self._service.shards.members.entries.values()
        return found.model_copy(
            update={"shards": tuple(ShardEntry.model_validate(each) for each in entries)}
        )

    async def recovery(self) -> RecoveryReport:
        """Report of the recovery at the last opening."""
        return self._service.store.recovery

    async def delays(self) -> DelayLevels:
        """Delay levels with their progress. A level whose delivery has stopped says why."""
        delays = self._service.store.delays
        found = await asyncio.to_thread(delays.status)
        levels = [DelayLevel.model_validate(each) for each in found]
        timed = TimedMessages.model_validate(delays.timer.status())
        return DelayLevels(levels=tuple(levels), timed=timed)

    async def segments(self) -> Segments:
        """Segments of the log, oldest first."""
        found = await asyncio.to_thread(self._service.store.segments)
        return Segments(segments=tuple([Segment.model_validate(each) for each in found]))
