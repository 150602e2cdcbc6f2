"""Routes of messages by id, physical offset, key and time, and of their bodies as downloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Header, Query, Request, Response
from fastapi import Path as PathParameter

from mqstore.query import merging, shard_search, store_cursor, views
from mqstore.query.merging import Paging
from mqstore.query.pull_route import LOOP_BYTES_MAX
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service import bodies, message_views, problems
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Lane
from mqstore.service.message_bodies import BodyForm
from mqstore.service.problems import Problem
from mqstore.service.ranges import parse_range
from mqstore.storage.errors import RecordError, RecordExpired
from mqstore.storage.formats import Record, decode_message_id
from mqstore.storage.reads import (
    HiddenKind,
    KeyAnswer,
    KeyQuery,
    MessageLane,
    ScanRange,
    TopicQuery,
    hidden_by_key,
    hidden_query_text,
    hidden_topics_of,
)
from mqstore.wire import messages as operations
from mqstore.wire.messages import BodyParameters, BodyShape

KEY_PAGE: Final = 16
"""Maximum number of records of one step of a key query, which may exceed maxAnswerBytes."""
KEY_RECORD_MAX: Final = 1 << 19
"""Bytes counted for a record when the number of records of a step is chosen."""

MessageId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=32767,
        description="Offset message id (32 or 56 hex characters), or a unique key.",
        openapi_examples={"offset message id": {"value": "7F00000100002A9F0000000000000000"}},
    ),
]


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for messages by key or time, with the limits and the form of its reply."""

    query: KeyQuery | TopicQuery
    hidden: tuple[str, ...]
    """Topics in which delayed and half messages of the topic are stored."""
    limit: int
    max_bytes: int
    """Maximum bytes of records in the reply, beyond the first record."""
    form: BodyForm

    @property
    def scope(self) -> str:
        """The text that binds a cursor to this search."""
        if isinstance(self.query, KeyQuery):
            return hidden_query_text(self.query, self.hidden)
        return repr(self.query)

    def paging(self) -> Paging:
        """Return how pages of several shards are merged."""
        query = self.query
        newest_first = isinstance(query, KeyQuery) or query.newest_first
        return shard_search.paging(
            self.scope, query, self.limit, self.max_bytes, newest_first=newest_first
        )


class MessageRoutes:
    """Serves single messages, their bodies, and searches by key and time."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.MESSAGE_BODY, self.body).add(api)
        Endpoint(operations.MESSAGE_AT, self.message_at).add(api)
        by_id = Hot(lane=self._message_lane, any_path=True)
        Endpoint(operations.MESSAGE, self.message, by_id).add(api)
        Endpoint(operations.MESSAGES, self.messages).add(api)

    async def message_at(
        self, wanted: Annotated[operations.MessageAtParameters, Query()], request: Request
    ) -> Response:
        """The message that begins at a physical offset of this shard's log."""
        self._service.shards.require_shard(request.scope)
        lookups = self._service.lookups
        return await self._reply_detail(
            lambda: lookups.by_physical_offset(wanted.physical_offset), wanted
        )

    async def message(
        self,
        message_id: MessageId,
        wanted: Annotated[operations.MessageParameters, Query()],
        request: Request,
    ) -> Response:
        """One message, by its offset message id, or by its unique key in `topic`."""
        if self._service.shards.fans_out(request.scope):
            await self._relay_to_holder(request, message_id, wanted.topic)
        return await self._reply_detail(self._finder(message_id, wanted.topic), wanted)

    def _message_lane(self, request: HotRequest) -> Lane | None:
        """Return the lane of messages in memory by their ids; None for a form that it has not.

        Raises Problem (400).
        """
        service, given = self._service, request.query()
        if not given.keys() <= {"body"}:
            return None
        shown = bodies.parameters(BodyParameters, given)
        form = message_views.message_form(self._shard, service.body_form(shown))
        lane = MessageLane(form, max_bytes=LOOP_BYTES_MAX)

        def find(message_id: bytes, start: bytes, ending: bytes) -> bytes | None:
            if service.shards.fans_out(request.scope):
                shard = shard_of_id(service, message_id.decode())
                if shard is not None and shard != service.shards.own:
                    return None
            store = service.store
            reader, field = store.reader, service.writer.field()
            reply = lane.find(reader.window, reader.queues, message_id, start, field, ending)
            if reply is not None:
                service.require_current(store)
            return reply

        return find

    async def body(
        self,
        message_id: MessageId,
        wanted: Annotated[operations.DownloadParameters, Query()],
        request: Request,
        range_: Annotated[
            str | None, Header(alias="range", description="One range of bytes.")
        ] = None,
    ) -> Response:
        """The body as it is stored: compressed if the message has `compression`."""
        if self._service.shards.fans_out(request.scope):
            await self._relay_to_holder(request, message_id, wanted.topic)
        find, bounds = self._finder(message_id, wanted.topic), self._service.inflate_bounds

        def read() -> tuple[str, bytes]:
            """Return the message's offset message id and its body. Runs in the pool."""
            found = self._find(find)
            name = found.offset_message_id
            return name, bounds.inflate(found) if wanted.inflate else found.body

        name, body = await self._service.run(read)
        return _download(name, body, range_)

    def _finder(self, message_id: str, topic: str | None) -> Callable[[], Record]:
        service = self._service
        if topic is None:
            return lambda: service.lookups.by_message_id(message_id)
        return lambda: service.lookups.by_unique_key(topic, message_id)

    async def _reply_detail(self, find: Callable[[], Record], shown: BodyParameters) -> Response:
        form = self._service.body_form(shown)
        return json_reply(await self._service.run(lambda: self._encode_detail(find, form)))

    def _encode_detail(self, find: Callable[[], Record], form: BodyForm) -> bytes:
        found = self._find(find)
        place = self._service.reader.places.of(found)
        if place is None:
            raise RecordExpired(f"offset {found.physical_offset} expired while it was read")
        return views.message_detail(found, self._shard, form, place)

    def _find(self, find: Callable[[], Record]) -> Record:
        """Return the record that ``find`` finds.

        Raises Problem for a damaged record, with the fields of its header that are readable.
        """
        try:
            return find()
        except RecordError as error:
            problem = damage_problem(self._service, error)
            if problem is None:
                raise
            raise problem from error

    async def _relay_to_holder(self, request: Request, message_id: str, topic: str | None) -> None:
        """Raises RelayedResponse with another shard's reply if that shard has the message."""
        shards = self._service.shards
        if topic is None:
            shard = shard_of_id(self._service, message_id)
        else:
            shard = await self._find_newest_shard(request, message_id, topic)
        if shard is not None and shard != shards.own:
            await shards.relay(shards.members.entries[shard], request)

    async def _find_newest_shard(self, request: Request, key: str, topic: str) -> int:
        """Return the shard of the newest message with a unique key. Raises Problem without one."""
        service = self._service
        find, form = (
            self._finder(key, topic),
            service.body_form(BodyParameters(body=BodyShape.NONE)),
        )
        target = f"/v1/messages/{quote(key, safe='')}?{urlencode({'topic': topic, 'body': 'none'})}"
        own = partial(service.run, lambda: self._encode_detail(find, form))
        async with service.shards.fan_out(request, own, target=target) as spread:
            spread.require_reply()
            return await service.run_admitted(lambda: merging.newest(spread))

    async def messages(
        self,
        topic: TopicName,
        request: Request,
        wanted: Annotated[operations.MessagesParameters, Query()],
    ) -> Response:
        """Messages under a key, or of a time. `scanned` has the range that was searched; no message
        of it is missing if `complete` is true. 410: with the oldest first, the next messages have
        expired."""
        service = self._service
        _ = service.reader
        key, from_, to = wanted.key, wanted.from_, wanted.to
        if to < from_:
            raise Problem(problems.BAD_PARAMETER, f"from ({from_}) is after to ({to}); swap them")
        if key is not None and wanted.order != "newest":
            raise Problem(problems.BAD_PARAMETER, "with a key the order is newest first")
        hidden = hidden_topics_of(
            [HiddenKind(each) for each in wanted.include.split(",")] if wanted.include else []
        )
        query: KeyQuery | TopicQuery
        if key is not None:
            query = KeyQuery(topic, key, from_, to)
        else:
            query = TopicQuery(topic, from_, to, wanted.order == "newest", hidden)
        search = _Search(
            query,
            hidden,
            wanted.limit,
            service.reply_bytes_max(inflate=wanted.inflate),
            service.body_form(wanted),
        )
        if service.shards.fans_out(request.scope):
            find, paging = partial(self._search, search), search.paging()
            found = await shard_search.find(
                service, request, find, paging, search.scope, wanted.cursor
            )
            return json_reply(found)
        return json_reply(await service.run(lambda: self._search(search, wanted.cursor)))

    def _search(self, search: _Search, cursor: str | None) -> bytes:
        """Encode a page of this shard's messages. Runs in the pool."""
        service, query = self._service, search.query
        service.store.require_topic(query.topic)
        store = service.store
        begun = None if cursor is None else store_cursor.remove_store_id(cursor, store.id)
        if isinstance(query, KeyQuery):
            answer = self._search_key(query, search, begun)
        else:
            answer = store.reader.scans.scan(
                query, limit=search.limit, max_bytes=search.max_bytes, cursor=begun
            )
        return msgspec.json.encode(views.messages(answer, self._shard, search.form, store.id))

    def _search_key(self, query: KeyQuery, search: _Search, cursor: str | None) -> KeyAnswer:
        """Search a key in small steps, so that few large records exceed ``max_bytes``."""
        limit, max_bytes = search.limit, search.max_bytes
        step = min(KEY_PAGE, 1 + max_bytes // KEY_RECORD_MAX)

        def page(count: int, after: str | None) -> KeyAnswer:
            return hidden_by_key(
                self._service.lookups, query, search.hidden, limit=count, cursor=after
            )

        answer = page(min(limit, step), cursor)
        size = sum(each.size for each in answer.records)
        while answer.cursor is not None and len(answer.records) < limit and size < max_bytes:
            more = page(min(limit - len(answer.records), step), answer.cursor)
            size += sum(each.size for each in more.records)
            answer = _join(answer, more)
        return answer


def shard_of_id(service: QueryService, message_id: str) -> int | None:
    """Return the shard of the host in an offset message id; None for an unknown host.

    Raises MessageIdError.
    """
    entry = service.shards.members.of_host(decode_message_id(message_id)[0])
    return None if entry is None else entry.shard


def damage_problem(service: QueryService, error: RecordError) -> Problem | None:
    """Return the problem of a damaged record, with the fields of its header that are readable.

    None for an error without a problem type.
    """
    problem = problems.from_storage(error)
    header = service.reader.places.header(error.offset)
    if problem is not None and header is not None:
        problem.extra.setdefault("known", views.header(header))
    return problem


def _join(first: KeyAnswer, more: KeyAnswer) -> KeyAnswer:
    """Join two pages; ``complete`` is that of the second, which searched the rest."""
    scanned, candidates = first.scanned, first.scanned.candidates + more.scanned.candidates
    return KeyAnswer(
        first.records + more.records,
        [*first.unreadable, *more.unreadable],
        more.cursor,
        more.complete,
        ScanRange(
            scanned.from_ms, scanned.to_ms, candidates, scanned.min_offset, scanned.max_offset
        ),
    )


def _download(name: str, body: bytes, range_header: str | None) -> Response:
    """Return the body as a file download."""
    headers = {
        "content-disposition": f'attachment; filename="{name}.bin"',
        "accept-ranges": "bytes",
    }
    found = parse_range(range_header, len(body))
    if found is None:
        return Response(body, headers=headers, media_type="application/octet-stream")
    start, stop = found
    headers["content-range"] = f"bytes {start}-{stop - 1}/{len(body)}"
    return Response(body[start:stop], 206, headers=headers, media_type="application/octet-stream")
