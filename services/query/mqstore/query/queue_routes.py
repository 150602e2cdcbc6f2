"""A topic's queues: their bounds, their messages from an offset, the offset of a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import merging, replies, views
from mqstore.query.routes import (
    INT64_MAX,
    QueueId,
    json_answer,
)
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.auth import Role
from mqstore.service.endpoint import Endpoint
from mqstore.wire import queues
from mqstore.wire.examples import lookups as examples


class QueueRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        for route in self._routes():
            route.add(api)

    def _routes(self) -> tuple[Endpoint, ...]:
        base = "/v1/topics/{topic}/queues"
        unknown = (problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN)
        return (
            Endpoint(
                path=base,
                role=Role.CONSUME,
                handler=self.queues,
                summary="A topic's queues and their bounds",
                tag="queues",
                reply=queues.Queues,
                example=examples.QUEUES,
                problems=(problems.TOPIC_UNKNOWN,),
            ),
            Endpoint(
                path=base + "/{queue}/offset",
                role=Role.CONSUME,
                handler=self.offset_by_time,
                summary="The queue offset of a time",
                tag="queues",
                reply=queues.QueueOffset,
                example=examples.OFFSET,
                problems=(*unknown, problems.SHARD_NEEDED),
            ),
        )

    async def queues(self, topic: TopicName, request: Request) -> Response:
        """Of several shards: all queues of the topic, with the shard that each is of."""
        service = self._service
        _ = service.reader

        def look() -> bytes:
            found = [views.queue(each, self._shard) for each in service.queues(topic)]
            return msgspec.json.encode(replies.Queues(topic=topic, queues=tuple(found)))

        if service.shards.spreads(request.scope):
            async with service.shards.everywhere(request, lambda: service.run(look)) as spread:
                return json_answer(await service.run_in_turn(lambda: merging.queues(spread)))
        return json_answer(await service.run(look))

    async def offset_by_time(
        self,
        topic: TopicName,
        queue: QueueId,
        timestamp: Annotated[
            int,
            Query(
                ge=0,
                le=INT64_MAX,
                description="Milliseconds since the epoch.",
                openapi_examples={"a time": {"value": 1795273269000}},
            ),
        ],
        request: Request,
    ) -> Response:
        service = self._service
        service.shards.require_shard(request.scope)
        _ = service.reader

        def look() -> bytes:
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

        return json_answer(await service.run(look))
