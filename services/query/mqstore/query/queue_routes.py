"""Routes of a topic's queues: their bounds, and the offset of a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import merging, replies, views
from mqstore.query.routes import QueueId, json_reply
from mqstore.query.service import QueryService
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.wire import queues as operations
from mqstore.wire.times import Time


class QueueRoutes:
    """Serves the bounds of queues and the queue offset of a time."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.QUEUES, self.queues).add(api)
        Endpoint(operations.OFFSET_BY_TIME, self.offset_by_time).add(api)

    async def queues(self, topic: TopicName, request: Request) -> Response:
        """All queues of the topic, each with its shard and bounds."""
        service = self._service
        _ = service.reader

        def encode_own() -> bytes:
            """Encode the queues of this shard. Runs in the pool."""
            found = [views.queue(each, self._shard) for each in service.queues(topic)]
            return msgspec.json.encode(replies.Queues(topic=topic, queues=tuple(found)))

        if service.shards.fans_out(request.scope):
            async with service.shards.fan_out(request, lambda: service.run(encode_own)) as spread:
                return json_reply(await service.run_admitted(lambda: merging.queues(spread)))
        return json_reply(await service.run(encode_own))

    async def offset_by_time(
        self,
        topic: TopicName,
        queue: QueueId,
        timestamp: Annotated[
            Time,
            Query(
                description="Milliseconds since the epoch, or a time in RFC 3339.",
                openapi_examples={"a time": {"value": 1795273269000}},
            ),
        ],
        request: Request,
    ) -> Response:
        """Queue offset of the first message that was stored at or after `timestamp`."""
        service = self._service
        service.shards.require_shard(request.scope)
        _ = service.reader

        def encode_offset() -> bytes:
            """Encode the offset and the bounds. Runs in the pool."""
            bounds = service.queue_range(topic, queue)
            offset = bounds.max_offset
            if bounds.max_offset > bounds.min_offset:
                offset = service.lookups.offset_by_time(topic, queue, timestamp)
            return msgspec.json.encode(
                replies.QueueOffset(
                    topic=topic,
                    queue_id=queue,
                    timestamp=timestamp,
                    offset=offset,
                    min_offset=bounds.min_offset,
                    max_offset=bounds.max_offset,
                    shard=self._shard,
                )
            )

        return json_reply(await service.run(encode_offset))
