"""What the query service knows of its store, and whether a writer lives."""

from __future__ import annotations

import msgspec
from fastapi import Response

from mqstore.query import examples
from mqstore.query.models import ShardView, StoreView
from mqstore.query.routes import Route, json_answer
from mqstore.query.service import QueryService
from mqstore.service.app import Api


class StoreRoute:
    def __init__(self, service: QueryService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        Route(
            "/v1/store",
            self.store,
            "The store's bounds, and whether its writer lives",
            "StoreView",
            examples.STORE,
            (),
            "segments",
        ).add(api)

    async def store(self) -> Response:
        return json_answer(await self._service.run(self._look))

    def _look(self) -> bytes:
        reader = self._service.reader
        state = reader.snapshot()
        return msgspec.json.encode(
            StoreView(
                self._service.writer.look().value,
                state.health.name.lower().replace("_", "-"),
                state.store_id,
                self._service.settings.shard,
                state.epoch,
                state.min_offset,
                state.max_offset,
                state.flushed_offset,
                state.dispatched_offset,
                state.index_complete,
                [
                    ShardView(each.shard, each.store_host, each.writer_url, each.query_url)
                    for each in self._service.shards.members.entries.values()
                ],
            )
        )
