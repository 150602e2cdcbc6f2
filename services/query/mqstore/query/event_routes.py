"""Streams of a topic's messages as server-sent events, in the order of the log, resumable.

The position of a stream is a physical offset: every message of the topic below it was sent. The
stream reads the ends of the queues, scans the log, and waits until a queue ends behind these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from mqstore.query import store_cursor
from mqstore.query.opened_store import OpenedStore
from mqstore.query.service import QueryService
from mqstore.service import message_views
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.events import RETRY
from mqstore.service.limits import client_of
from mqstore.service.message_bodies import BodyForm
from mqstore.service.problems import Problem
from mqstore.storage.errors import RecordExpired, StoreNotOpen, TopicNotReadable, TopicUnknown
from mqstore.storage.formats import decode_cursor, encode_cursor
from mqstore.storage.reads import KeyAnswer, PullFilter, TopicQuery
from mqstore.wire import messages as operations

BATCH: Final = 100
"""Maximum number of messages of one scan."""
BATCH_BYTES: Final = 1 << 20
HEARTBEAT_S: Final = 15.0
_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")
"""Replaces line ends, which are white space in JSON, because an event's data is one line."""


class EventRoutes:
    """Serves streams of a topic's messages."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        self._api = api
        Endpoint(operations.TOPIC_EVENTS, self.events).add(api)

    async def events(
        self,
        topic: TopicName,
        request: Request,
        wanted: Annotated[operations.FollowParameters, Query()],
        last_event_id: Annotated[
            str | None,
            Header(max_length=200, description="Resume behind this event; overrides `from`."),
        ] = None,
    ) -> StreamingResponse:
        """Event `message` has a message in the usual form, event `unreadable` the position of a
        damaged one. Event `position` has no data: it is sent first if no message is there yet, and
        after 15 s without an event, so that the client sees that the connection is alive. A stream
        resumes behind the id of any event. 410: retention deleted the next messages.
        """
        service = self._service
        service.shards.require_shard(request.scope)
        self._api.limits.hold_stream(request.scope)
        form = service.body_form(wanted)
        query = TopicQuery(topic, from_ms=wanted.from_ or 0, newest_first=False)
        store = service.store
        start: int | None = store.reader.state.dispatched_offset
        if last_event_id is not None:
            start = decode_cursor(
                store_cursor.remove_store_id(last_event_id, store.id), _cursor_scope(topic)
            )
            query = TopicQuery(topic, newest_first=False)
        elif wanted.from_ is not None:
            start = None
        client = client_of(request.scope)
        chosen = await service.compile_filter(topic, wanted.tags, wanted.sql, client)
        is_allowed = partial(
            self._api.auth.allows, request.scope["headers"], operations.TOPIC_EVENTS.role
        )
        stream = _Stream(service, store, query, start, chosen, form, is_allowed)
        await service.run(lambda: service.store.require_topic(topic))
        await service.run(lambda: store.require_consuming(topic, group=""))
        store.reader.scans.require_unexpired(query, start)
        service.require_current(store)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            stream.events(), headers=headers, media_type=operations.EVENTS_TYPE
        )


class _Stream:
    """The stream of one client. ``position`` advances with the messages sent."""

    def __init__(
        self,
        service: QueryService,
        store: OpenedStore,
        query: TopicQuery,
        position: int | None,
        wanted: PullFilter | None,
        form: BodyForm,
        is_allowed: Callable[[], bool],
    ) -> None:
        """``is_allowed`` says whether the client's token is still valid."""
        self._is_allowed = is_allowed
        self._service = service
        self._store = store
        self._query = query
        self._position = position
        self._wanted = wanted
        self._form = form
        self._max_bytes = min(BATCH_BYTES, service.reply_bytes_max(inflate=form.inflates))

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events until the service shuts down, or the client's token is removed.

        The first event has the stream's position, so that a connection that breaks before any
        message resumes there.
        """
        arrivals, now = self._service.arrivals, asyncio.get_running_loop().time
        yield RETRY
        due = now()
        while not arrivals.interrupted:
            try:
                ends = await self._service.run_admitted(self._ends)
                answer, events = await self._service.run_admitted(self._scan)
                self._service.require_current(self._store)
            except (RecordExpired, StoreNotOpen, TopicNotReadable, TopicUnknown, Problem):
                return  # a client that reconnects gets the problem
            if not self._is_allowed():
                return
            if events or now() >= due:
                yield events or self._position_event()
                due = now() + HEARTBEAT_S
            if answer.cursor is None:
                with arrivals.watch(*ends) as arrival:
                    await asyncio.wait({arrival}, timeout=due - now())

    def _ends(self) -> list[tuple[str, int, int]]:
        topic = self._query.topic
        self._store.require_consuming(topic, group="")
        return [(topic, each.queue_id, each.max_offset) for each in self._store.queues(topic)]

    def _scan(self) -> tuple[KeyAnswer, bytes]:
        answer = self._store.reader.scans.scan_from(
            self._query, self._position, limit=BATCH, max_bytes=self._max_bytes
        )
        if answer.cursor is None:
            self._position = max(self._position or 0, answer.scanned.max_offset)
        else:
            self._position = decode_cursor(answer.cursor, repr(self._query))
        return answer, self._encode_events(answer)

    def _encode_events(self, answer: KeyAnswer) -> bytes:
        form = message_views.message_form(self._service.settings.shard, self._form)
        found: list[tuple[int, bytes]] = []
        for record in answer.records:
            if self._wanted is None or self._wanted.matches(record):
                shown = message_views.message(record, form)
                at = record.physical_offset
                found.append((at, self._event("message", at + 1, shown)))
        for each in answer.unreadable:
            at = each.physical_offset
            found.append((at, self._event("unreadable", at + 1, message_views.unreadable(each))))
        return b"".join(event for _, event in sorted(found))

    def _position_event(self) -> bytes:
        return self._event("position", self._position or 0, {})

    def _event(self, kind: str, following: int, data: Any) -> bytes:
        """Encode an event; its id is the cursor of the physical offset ``following``."""
        cursor = encode_cursor(following, _cursor_scope(self._query.topic))
        event_id = store_cursor.add_store_id(cursor, self._store.id)
        content = msgspec.json.encode(data).translate(_BLANKS)
        return f"id: {event_id}\nevent: {kind}\ndata: ".encode() + content + b"\n\n"


def _cursor_scope(topic: str) -> str:
    return f"events of {topic}"
