"""The query service's routes: by id, by key, by queue and offset, by time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import msgspec
from fastapi import Path as PathParameter
from fastapi import Query, Response

from mqstore.query import examples, views
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api, TopicName, documented
from mqstore.service.auth import Role
from mqstore.service.problems import Problem
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import QueueUnknown
from mqstore.storage.lookups import KeyAnswer, Pull, PullStatus

PULL_COUNT_DEFAULT: Final = 32
COUNT_MAX: Final = 1_000
KEY_COUNT_DEFAULT: Final = 64
WAIT_MAX_S: Final = 30
KEY_PAGE: Final = 16
"""Records of one step of a key query: what it may hold beyond maxAnswerBytes."""
INT64_MAX: Final = 2**63 - 1

QueueId = Annotated[
    int,
    PathParameter(
        ge=0, le=2**31 - 1, description="Queue, from 0.", openapi_examples={"first": {"value": 0}}
    ),
]
_ONE_MESSAGE = (
    problems.BAD_MESSAGE_ID,
    problems.MESSAGE_UNKNOWN,
    problems.MESSAGE_EXPIRED,
    problems.MESSAGE_LOST,
    problems.MESSAGE_DAMAGED,
    problems.MESSAGE_SUSPECT,
)


@dataclass(frozen=True, slots=True)
class _Route:
    path: str
    endpoint: Any
    summary: str
    schema: str
    example: dict[str, Any]
    problems: tuple[problems.ProblemType, ...]


def add(api: Api, service: QueryService) -> None:
    """Put all routes of query into its interface."""
    api.add_schemas(*views.SCHEMAS)
    consume = api.requires(Role.CONSUME)
    for route in (*_Messages(service).routes(), *_Queues(service).routes()):
        api.app.add_api_route(
            route.path,
            route.endpoint,
            summary=route.summary,
            response_class=Response,
            responses=documented(
                route.schema,
                route.example,
                problems.BAD_PARAMETER,
                *route.problems,
                *problems.GUARDED,
            ),
            tags=["queues" if "queues" in route.path else "messages"],
            dependencies=[consume],
        )


class _Messages:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def routes(self) -> tuple[_Route, ...]:
        return (
            _Route(
                "/v1/messages/{id}",
                self.message,
                "One message, by its id",
                "MessageView",
                examples.MESSAGE,
                _ONE_MESSAGE,
            ),
            _Route(
                "/v1/topics/{topic}/messages",
                self.messages_by_key,
                "Messages by key, newest first",
                "KeyView",
                examples.BY_KEY,
                (problems.BAD_CURSOR, problems.TOPIC_UNKNOWN),
            ),
        )

    async def message(
        self,
        message_id: Annotated[
            str,
            PathParameter(
                alias="id",
                max_length=32767,
                description="Offset message id (32 or 56 hex characters), or a unique key.",
                openapi_examples={
                    "offset message id": {"value": "7F00000100002A9F0000000000000000"}
                },
            ),
        ],
        topic: Annotated[
            str | None, Query(description="Given: the id is a unique key of this topic.")
        ] = None,
    ) -> Response:
        lookups = self._service.lookups

        def look() -> bytes:
            if topic is None:
                return self._encoded(lookups.by_message_id(message_id))
            return self._encoded(lookups.by_unique_key(topic, message_id))

        return _json(await self._service.run(look))

    def _encoded(self, found: Record) -> bytes:
        return msgspec.json.encode(views.message(found, self._shard))

    async def messages_by_key(
        self,
        topic: TopicName,
        key: Annotated[
            str,
            Query(
                min_length=1,
                max_length=32767,
                description="A unique key or one of KEYS.",
                openapi_examples={"a key": {"value": "order-1"}},
            ),
        ],
        from_: Annotated[
            int,
            Query(alias="from", ge=0, le=INT64_MAX, description="Stored at or after, in ms."),
        ] = 0,
        to: Annotated[
            int | None, Query(ge=0, le=INT64_MAX, description="Stored at or before, in ms.")
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=COUNT_MAX, description="Messages of one answer, at most.")
        ] = KEY_COUNT_DEFAULT,
        cursor: Annotated[
            str | None, Query(max_length=200, description="`next` of the answer before.")
        ] = None,
    ) -> Response:
        service = self._service
        lookups = service.lookups
        if to is not None and to < from_:
            raise Problem(problems.BAD_PARAMETER, f"from ({from_}) is after to ({to}); swap them")

        def page(count: int, after: str | None) -> KeyAnswer:
            return lookups.by_key(topic, key, from_ms=from_, to_ms=to, limit=count, cursor=after)

        def look() -> bytes:
            service.require_topic(topic)
            answer = page(min(limit, KEY_PAGE), cursor)
            size = sum(each.size for each in answer.records)
            while (
                answer.cursor is not None
                and len(answer.records) < limit
                and size < service.settings.max_answer_bytes
            ):
                more = page(min(limit - len(answer.records), KEY_PAGE), answer.cursor)
                size += sum(each.size for each in more.records)
                answer = _joined(answer, more)
            return msgspec.json.encode(views.by_key(answer, self._shard))

        return _json(await service.run(look))


class _Queues:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def routes(self) -> tuple[_Route, ...]:
        base = "/v1/topics/{topic}/queues"
        unknown = (problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN)
        return (
            _Route(
                base,
                self.queues,
                "A topic's queues and their bounds",
                "QueuesView",
                examples.QUEUES,
                (problems.TOPIC_UNKNOWN,),
            ),
            _Route(
                base + "/{queue}/messages",
                self.pull,
                "Messages of a queue, from an offset; waits for arrivals when asked to",
                "PullView",
                examples.PULL,
                unknown,
            ),
            _Route(
                base + "/{queue}/offset",
                self.offset_by_time,
                "The queue offset of a time",
                "OffsetView",
                examples.OFFSET,
                unknown,
            ),
        )

    async def queues(self, topic: TopicName) -> Response:
        service = self._service
        _ = service.reader

        def look() -> bytes:
            found = [views.queue(each, self._shard) for each in service.queues(topic)]
            return msgspec.json.encode(views.QueuesView(topic, found))

        return _json(await service.run(look))

    async def pull(
        self,
        topic: TopicName,
        queue: QueueId,
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

        def look() -> tuple[Pull, bytes]:
            found = self._pull(topic, queue, offset, max_)
            return found, msgspec.json.encode(views.pull(found, self._shard))

        if not wait or service.arrivals.interrupted:
            return _json((await service.run(look))[1])
        if len(service.arrivals) >= service.settings.max_open_polls:
            raise Problem(problems.OVERLOADED, "too many long polls are open")
        with service.arrivals.watch(topic, queue, offset) as arrival:
            found, body = await service.run(look)
            if found.status is not PullStatus.OFFSET_OVERFLOW_ONE:
                return _json(body)
            done, _pending = await asyncio.wait({arrival}, timeout=wait)
        return _json((await service.run(look))[1] if done else body)

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
                views.OffsetView(
                    topic,
                    queue,
                    timestamp,
                    offset,
                    bounds.min_offset,
                    bounds.max_offset,
                    self._shard,
                )
            )

        return _json(await service.run(look))

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


def _joined(first: KeyAnswer, more: KeyAnswer) -> KeyAnswer:
    """Two pages as one; complete is what the last one says, since it looked at the rest."""
    candidates = first.scanned.candidates + more.scanned.candidates
    return KeyAnswer(
        first.records + more.records,
        first.unreadable + more.unreadable,
        more.cursor,
        more.complete,
        replace(first.scanned, candidates=candidates),
    )


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
