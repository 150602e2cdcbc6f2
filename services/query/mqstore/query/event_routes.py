"""Following a topic: server-sent events, in the order of the log, resumable where they broke off.

A stream's position is one physical offset: everything of the topic below it was sent. It first
notes where the queues end, then looks, then waits until one of them reaches further.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from mqstore.query import store_cursor, views
from mqstore.query.bodies import BodyForm
from mqstore.query.opened_store import OpenedStore
from mqstore.query.routes import BodyOptions, body_options
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.events import RETRY
from mqstore.service.limits import client_of
from mqstore.service.problems import Problem
from mqstore.storage.errors import RecordExpired, StoreNotOpen, TopicUnknown
from mqstore.storage.formats import decode_cursor, encode_cursor
from mqstore.storage.reads import KeyAnswer, PullFilter, TopicQuery
from mqstore.wire.base import INT64_MAX
from mqstore.wire.operations import lookups as operations

BATCH: Final = 100
"""Messages looked at in one go."""
BATCH_BYTES: Final = 1 << 20
HEARTBEAT_S: Final = 15.0
ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
"""Bodies that are shown as JSON may have line ends in them, which are nothing but blanks there."""


class EventRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._streams = 0

    def add(self, api: Api) -> None:
        Endpoint(operations.TOPIC_EVENTS, self.events).add(api)

    async def events(
        self,
        topic: TopicName,
        request: Request,
        body_as: Annotated[BodyOptions, Depends(body_options)],
        from_: Annotated[
            int | None,
            Query(
                alias="from",
                ge=0,
                le=INT64_MAX,
                description="Begin with what was stored at or after this time, in ms; without it, "
                "with what arrives from now on.",
            ),
        ] = None,
        tags: Annotated[
            str | None,
            Query(
                description="Only messages with one of these tags: `A || B`.",
                openapi_examples={"two tags": {"value": "created || changed"}},
            ),
        ] = None,
        sql: Annotated[
            str | None,
            Query(
                description="Only messages whose properties this SQL92 expression is true of; not "
                "with `tags`.",
                openapi_examples={"an expression": {"value": "a > 5 AND b IS NOT NULL"}},
            ),
        ] = None,
        last_event_id: Annotated[
            str | None,
            Header(max_length=200, description="Go on behind this event; goes before `from`."),
        ] = None,
    ) -> StreamingResponse:
        """`message` has a message as everywhere, `unreadable` a damaged one, `position` nothing:
        it comes where nothing else is there to begin with, and when nothing else came for 15 s, and
        tells that the connection lives. An event's id is where to go on; 410 says that retention
        took what would come next.
        """
        service = self._service
        service.shards.require_shard(request.scope)
        if self._streams >= service.settings.max_open_polls:
            raise Problem(problems.OVERLOADED, "too many streams are open")
        form = service.form(body_as.shape, body_as.max_bytes, inflate=body_as.inflate)
        query = TopicQuery(topic, from_ms=from_ or 0, newest_first=False)
        store = service.store
        start: int | None = store.reader.state.dispatched_offset
        if last_event_id is not None:
            start = decode_cursor(store_cursor.unmark(last_event_id, store.id), _place(topic))
            query = TopicQuery(topic, newest_first=False)
        elif from_ is not None:
            start = None
        wanted = await service.filter(topic, tags, sql, client_of(request.scope))
        stream = _Stream(service, store, query, start, wanted, form)
        await service.run(lambda: service.require_topic(topic))
        store.reader.scans.require_there(query, start)
        service.require(store)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            self._counted(stream), headers=headers, media_type=operations.EVENTS_TYPE
        )

    async def _counted(self, stream: _Stream) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in stream.events():
                yield event
        finally:
            self._streams -= 1


class _Stream:
    """What one client follows; ``position`` goes along."""

    def __init__(
        self,
        service: QueryService,
        store: OpenedStore,
        query: TopicQuery,
        position: int | None,
        wanted: PullFilter | None,
        form: BodyForm,
    ) -> None:
        self._service = service
        self._store = store
        self._query = query
        self._position = position
        self._wanted = wanted
        self._form = form
        self._max_bytes = min(BATCH_BYTES, service.answer_bytes(inflate=form.inflates))

    async def events(self) -> AsyncIterator[bytes]:
        """Until the client or the service ends; first, where it is: a connection that breaks
        before any message came is taken up again there."""
        arrivals, now = self._service.arrivals, asyncio.get_running_loop().time
        yield RETRY
        due = now()
        while not arrivals.interrupted:
            try:
                ends = await self._service.run_in_turn(self._ends)
                answer, events = await self._service.run_in_turn(self._look)
                self._service.require(self._store)
            except (RecordExpired, StoreNotOpen, TopicUnknown, Problem):
                return  # who comes back is told
            if events or now() >= due:
                yield events or self._where()
                due = now() + HEARTBEAT_S
            if answer.cursor is None:
                with arrivals.watch(*ends) as arrival:
                    await asyncio.wait({arrival}, timeout=due - now())

    def _ends(self) -> list[tuple[str, int, int]]:
        topic = self._query.topic
        return [(topic, each.queue_id, each.max_offset) for each in self._service.queues(topic)]

    def _look(self) -> tuple[KeyAnswer, bytes]:
        answer = self._store.reader.scans.scan_from(
            self._query, self._position, limit=BATCH, max_bytes=self._max_bytes
        )
        if answer.cursor is None:
            self._position = max(self._position or 0, answer.scanned.max_offset)
        else:
            self._position = decode_cursor(answer.cursor, repr(self._query))
        return answer, self._encoded(answer)

    def _encoded(self, answer: KeyAnswer) -> bytes:
        shard = self._service.settings.shard
        found: list[tuple[int, bytes]] = []
        for record in answer.records:
            if self._wanted is None or self._wanted.matches(record):
                shown = views.message(record, shard, self._form)
                at = record.physical_offset
                found.append((at, self._event("message", at + 1, shown)))
        for each in answer.unreadable:
            at = each.physical_offset
            found.append((at, self._event("unreadable", at + 1, views.unreadable(each))))
        return b"".join(event for _, event in sorted(found))

    def _where(self) -> bytes:
        return self._event("position", self._position or 0, {})

    def _event(self, kind: str, following: int, data: Any) -> bytes:
        """One event; its id is where to go on behind it."""
        cursor = encode_cursor(following, _place(self._query.topic))
        place = store_cursor.mark(cursor, self._store.id)
        told = msgspec.json.encode(data).translate(ONE_LINE)
        return f"id: {place}\nevent: {kind}\ndata: ".encode() + told + b"\n\n"


def _place(topic: str) -> str:
    return f"events of {topic}"
