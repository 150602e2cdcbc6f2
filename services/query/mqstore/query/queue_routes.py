"""A topic's queues: their bounds, their messages from an offset, the offset of a time."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import Depends, Query, Response

from mqstore.query import examples, models, views
from mqstore.query.routes import (
    COUNT_MAX,
    INT64_MAX,
    BodyAsked,
    QueueId,
    Route,
    body_asked,
    json_answer,
)
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.problems import Problem
from mqstore.storage.errors import QueueUnknown
from mqstore.storage.lookups import Pull, PullStatus

PULL_COUNT_DEFAULT: Final = 32
WAIT_MAX_S: Final = 30


class QueueRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        for route in self._routes():
            route.add(api)

    def _routes(self) -> tuple[Route, ...]:
        base = "/v1/topics/{topic}/queues"
        unknown = (problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN)
        return (
            Route(
                base,
                self.queues,
                "A topic's queues and their bounds",
                "QueuesView",
                examples.QUEUES,
                (problems.TOPIC_UNKNOWN,),
                "queues",
            ),
            Route(
                base + "/{queue}/messages",
                self.pull,
                "Messages of a queue, from an offset; waits for arrivals when asked to",
                "PullView",
                examples.PULL,
                unknown,
                "queues",
            ),
            Route(
                base + "/{queue}/offset",
                self.offset_by_time,
                "The queue offset of a time",
                "OffsetView",
                examples.OFFSET,
                unknown,
                "queues",
            ),
        )

    async def queues(self, topic: TopicName) -> Response:
        service = self._service
        _ = service.reader

        def look() -> bytes:
            found = [views.queue(each, self._shard) for each in service.queues(topic)]
            return msgspec.json.encode(models.QueuesView(topic, found))

        return json_answer(await service.run(look))

    async def pull(
        self,
        topic: TopicName,
        queue: QueueId,
        asked: Annotated[BodyAsked, Depends(body_asked)],
        offset: Annotated[
            int,
            Query(ge=0, le=INT64_MAX, description="Queue offset; below the first, from the first."),
        ] = 0,
        max_: Annotated[
            int, Query(alias="max", ge=1, le=COUNT_MAX, description="Messages, at most.")
        ] = PULL_COUNT_DEFAULT,
        wait: Annotated[
            float,
            Query(ge=0, le=WAIT_MAX_S, description="Seconds to wait at the queue's end."),
        ] = 0,
    ) -> Response:
        service = self._service
        _ = service.reader
        form = service.form(asked.shape, asked.max_bytes, inflate=asked.inflate)

        def look() -> tuple[Pull, bytes]:
            found = self._pull(topic, queue, offset, max_)
            return found, msgspec.json.encode(views.pull(found, self._shard, form))

        def answer(found: Pull, body: bytes) -> Response:
            size = sum(record.size for record in found.records)
            service.traffic.count(topic, "", len(found.records), size)
            return json_answer(body)

        if not wait or service.arrivals.interrupted:
            return answer(*await service.run(look))
        if len(service.arrivals) >= service.settings.max_open_polls:
            raise Problem(problems.OVERLOADED, "too many long polls are open")
        with service.arrivals.watch(topic, queue, offset) as arrival:
            found, body = await service.run(look)
            if found.status is not PullStatus.OFFSET_OVERFLOW_ONE:
                return answer(found, body)
            done, _pending = await asyncio.wait({arrival}, timeout=wait)
        return answer(*await service.run(look)) if done else json_answer(body)

    async def offset_by_time(
        self,
        topic: TopicName,
        queue: QueueId,
        timestamp: Annotated[
            int, Query(ge=0, le=INT64_MAX, description="Milliseconds since the epoch.")
        ],
    ) -> Response:
        service = self._service
        _ = service.reader

        def look() -> bytes:
            bounds = service.queue_range(topic, queue)
            offset = bounds.max_offset
            if bounds.max_offset > bounds.min_offset:
                offset = service.lookups.offset_by_time(topic, queue, timestamp)
            return msgspec.json.encode(
                models.OffsetView(
                    topic,
                    queue,
                    timestamp,
                    offset,
                    bounds.min_offset,
                    bounds.max_offset,
                    self._shard,
                )
            )

        return json_answer(await service.run(look))

    def _pull(self, topic: str, queue: int, offset: int, count: int) -> Pull:
        service = self._service
        try:
            return service.lookups.records(
                topic, queue, offset, count, service.settings.max_answer_bytes
            )
        except QueueUnknown:
            service.queue_range(topic, queue)  # a topic without messages is no error
            at_end = offset == 0
            status = PullStatus.OFFSET_OVERFLOW_ONE if at_end else PullStatus.OFFSET_OVERFLOW_BADLY
            return Pull(status, [], [], 0, 0, 0)
