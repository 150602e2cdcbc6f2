"""The route that moves the keys of a shard to the others, before it is removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import RELEASE_REFUSED, Problem
from mqstore.wire import key_shards as operations
from mqstore.wire.key_shards import KeyShards
from mqstore.writer.service import WriterService

Number = Annotated[int, Path(ge=0, description="The shard.")]


class ShardRoutes:
    """Serves requests about shards that the first one decides."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.RELEASE_KEYS, self.release_keys, is_guarded=False).add(api)

    async def release_keys(self, number: Number, request: Request) -> KeyShards:
        """Move the keys of a shard to the others, before it is removed. From then on messages under
        its keys are stored by the others, which no longer look for duplicates on that shard. It
        gets keys again once its process was started again. All shards know it within seconds."""
        shards = self._service.shards
        if not shards.is_first:
            await shards.relay(shards.first, request)
        if shards.find_remote(number, {"headers": ()}) is None:
            raise Problem(RELEASE_REFUSED, f"shard {number} is the first one of the list")
        owners = await self._service.key_ownership.release(number)
        return KeyShards(shards=owners.shards, released=tuple(sorted(owners.released)))
