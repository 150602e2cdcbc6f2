"""The route of the store's state as query sees it, and of the writer's state."""

from __future__ import annotations

import msgspec
from fastapi import Response

from mqstore.query import replies
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire import segments as operations


class StoreRoute:
    """Serves ``GET /v1/store``."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.STORE_STATE, self.store).add(api)

    async def store(self) -> Response:
        """Return the bounds of the log and the state of the store and of its writer."""
        return json_reply(await self._service.run(self._encode_state))

    def _encode_state(self) -> bytes:
        reader = self._service.reader
        state = reader.snapshot()
        return msgspec.json.encode(
            replies.StoreState(
                writer=self._service.writer.refresh().value,
                health=state.health.name.lower().replace("_", "-"),
                store_id=state.store_id,
                shard=self._service.settings.shard,
                epoch=state.epoch,
                min_offset=state.min_offset,
                max_offset=state.max_offset,
                end_offset=state.log_end,
                confirmed_offset=state.confirmed_offset,
                in_sync=state.in_sync,
                behind_bytes=state.behind,
                flushed_offset=state.flushed_offset,
                dispatched_offset=state.dispatched_offset,
                index_complete=state.index_complete,
                shards=tuple(
                    replies.ShardEntry(**each.model_dump())
                    for each in self._service.shards.members.entries.values()
                ),
            )
        )
