"""Messages by id, physical offset and key; their bodies for download."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Literal
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Depends, Header, Query, Request, Response
from fastapi import Path as PathParameter

from mqstore.query import merging, shard_cursor, store_cursor, views
from mqstore.query.bodies import BodyForm, BodyShape
from mqstore.query.merging import Paging
from mqstore.query.routes import (
    BodyOptions,
    body_options,
    json_answer,
)
from mqstore.query.service import QueryService
from mqstore.query.shard_cursor import Parts
from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import Problem
from mqstore.service.ranges import parse_range
from mqstore.storage.errors import RecordError, RecordExpired
from mqstore.storage.formats import Record, decode_message_id, encode_cursor
from mqstore.storage.reads import (
    Hidden,
    KeyAnswer,
    KeyQuery,
    Scanned,
    TopicQuery,
    hidden_by_key,
    hidden_query_text,
    hidden_topics_of,
)
from mqstore.wire.base import INT64_MAX
from mqstore.wire.limits import COUNT_MAX
from mqstore.wire.operations import lookups as operations

Order = Literal["newest", "oldest"]

KEY_COUNT_DEFAULT: Final = 64
KEY_PAGE: Final = 16
"""Records of one step of a key query: what it may hold beyond maxAnswerBytes."""
KEY_RECORD_MAX: Final = 1 << 19
"""Where an answer is to hold less than KEY_PAGE such records, a step has fewer."""

MessageId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=32767,
        description="Offset message id (32 or 56 hex characters), or a unique key.",
        openapi_examples={"offset message id": {"value": "7F00000100002A9F0000000000000000"}},
    ),
]
UniqueKeyTopic = Annotated[
    str | None, Query(description="Given: the id is a unique key of this topic.")
]


class MessageRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        Endpoint(operations.MESSAGE_BODY, self.body).add(api)
        Endpoint(operations.MESSAGE_AT, self.message_at).add(api)
        Endpoint(operations.MESSAGE, self.message).add(api)
        Endpoint(operations.MESSAGES, self.messages).add(api)

    async def message_at(
        self,
        offset: Annotated[
            int,
            Query(
                alias="physicalOffset",
                ge=0,
                le=INT64_MAX,
                description="Of its first byte, exactly.",
                openapi_examples={"the log's first": {"value": 0}},
            ),
        ],
        body_as: Annotated[BodyOptions, Depends(body_options)],
        request: Request,
    ) -> Response:
        self._service.shards.require_shard(request.scope)
        service = self._service
        return await self._one(lambda: service.lookups.by_physical_offset(offset), body_as)

    async def message(
        self,
        message_id: MessageId,
        body_as: Annotated[BodyOptions, Depends(body_options)],
        request: Request,
        topic: UniqueKeyTopic = None,
    ) -> Response:
        if self._service.shards.fans_out(request.scope):
            await self._require_here(request, message_id, topic)
        return await self._one(self._finder(message_id, topic), body_as)

    async def body(
        self,
        message_id: MessageId,
        request: Request,
        topic: UniqueKeyTopic = None,
        inflate: Annotated[
            bool, Query(description="Inflate a compressed body, up to maxInflatedSize.")
        ] = False,
        range_: Annotated[
            str | None, Header(alias="range", description="One range of bytes.")
        ] = None,
    ) -> Response:
        """As it is stored: compressed where the message's `compression` says so."""
        if self._service.shards.fans_out(request.scope):
            await self._require_here(request, message_id, topic)
        find, bounds = self._finder(message_id, topic), self._service.inflate_bounds

        def look() -> tuple[str, bytes]:
            found = self._found(find)
            name = found.offset_message_id
            return name, bounds.inflate(found) if inflate else found.body

        name, body = await self._service.run(look)
        return _download(name, body, range_)

    def _finder(self, message_id: str, topic: str | None) -> Callable[[], Record]:
        service = self._service
        if topic is None:
            return lambda: service.lookups.by_message_id(message_id)
        return lambda: service.lookups.by_unique_key(topic, message_id)

    async def _one(self, find: Callable[[], Record], body_as: BodyOptions) -> Response:
        form = self._service.form(body_as.shape, body_as.max_bytes, inflate=body_as.inflate)
        return json_answer(await self._service.run(lambda: self._detail(find, form)))

    def _detail(self, find: Callable[[], Record], form: BodyForm) -> bytes:
        found = self._found(find)
        place = self._service.reader.places.of(found)
        if place is None:
            raise RecordExpired(f"offset {found.physical_offset} has expired while it was read")
        return msgspec.json.encode(views.message_detail(found, self._shard, form, place))

    def _found(self, find: Callable[[], Record]) -> Record:
        """Raises Problem for a damaged record, with what it still says of itself."""
        try:
            return find()
        except RecordError as error:
            problem = problems.from_storage(error)
            header = self._service.reader.places.header(error.offset)
            if problem is None or header is None:
                raise
            problem.extra.setdefault("known", views.header(header))
            raise problem from error

    async def _require_here(self, request: Request, message_id: str, topic: str | None) -> None:
        """Where another shard has the message: raises RelayedResponse, with its answer."""
        shards = self._service.shards
        if topic is None:
            entry = shards.members.of_host(decode_message_id(message_id)[0])
            shard = None if entry is None else entry.shard
        else:
            shard = await self._newest_at(request, message_id, topic)
        if shard is not None and shard != shards.own:
            await shards.relay(shards.members.entries[shard], request)

    async def _newest_at(self, request: Request, key: str, topic: str) -> int:
        """The shard of the newest message with a unique key. Raises Problem where none has it."""
        service = self._service
        find, form = self._finder(key, topic), service.form(BodyShape.NONE, None, inflate=False)
        target = f"/v1/messages/{quote(key, safe='')}?{urlencode({'topic': topic, 'body': 'none'})}"
        own = partial(service.run, lambda: self._detail(find, form))
        async with service.shards.fan_out(request, own, target=target) as spread:
            spread.require_reply()
            return await service.run_in_turn(lambda: merging.newest(spread))

    async def messages(
        self,
        topic: TopicName,
        request: Request,
        body_as: Annotated[BodyOptions, Depends(body_options)],
        key: Annotated[
            str | None,
            Query(
                min_length=1,
                max_length=32767,
                description="A unique key or one of KEYS; without it, all messages of the times.",
                openapi_examples={"a key": {"value": "order-1"}},
            ),
        ] = None,
        from_: Annotated[
            int,
            Query(alias="from", ge=0, le=INT64_MAX, description="Stored at or after, in ms."),
        ] = 0,
        to: Annotated[
            int, Query(ge=0, le=INT64_MAX, description="Stored at or before, in ms.")
        ] = INT64_MAX,
        order: Annotated[Order, Query(description="`oldest` first only without a key.")] = "newest",
        include: Annotated[
            str | None,
            Query(
                pattern="^(delayed|half)(,(delayed|half))*$",
                description="Also messages of this topic that are still delayed, or half messages "
                "of a transaction: `delayed,half`.",
                openapi_examples={"both": {"value": "delayed,half"}},
            ),
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=COUNT_MAX, description="Messages of one answer, at most.")
        ] = KEY_COUNT_DEFAULT,
        cursor: Annotated[
            str | None,
            Query(max_length=shard_cursor.LENGTH_MAX, description="`next` of the answer before."),
        ] = None,
    ) -> Response:
        """What was looked at is in `scanned`; nothing is missing when `complete` is true. 410: the
        oldest were first, and what came next has expired."""
        service = self._service
        _ = service.reader
        form = service.form(body_as.shape, body_as.max_bytes, inflate=body_as.inflate)
        if to < from_:
            raise Problem(problems.BAD_PARAMETER, f"from ({from_}) is after to ({to}); swap them")
        if key is not None and order != "newest":
            raise Problem(problems.BAD_PARAMETER, "with a key the order is newest first")
        hidden = hidden_topics_of([Hidden(each) for each in include.split(",")] if include else [])
        most = service.answer_bytes(inflate=body_as.inflate)

        query: KeyQuery | TopicQuery
        if key is not None:
            query = KeyQuery(topic, key, from_, to)
        else:
            query = TopicQuery(topic, from_, to, order == "newest", hidden)

        def look(cursor: str | None) -> bytes:
            service.require_topic(topic)
            store = service.store
            begun = None if cursor is None else store_cursor.unmark(cursor, store.id)
            if isinstance(query, KeyQuery):
                answer = self._by_key(query, hidden, limit, most, begun)
            else:
                scans = store.reader.scans
                answer = scans.scan(query, limit=limit, max_bytes=most, cursor=begun)
            return msgspec.json.encode(views.messages(answer, self._shard, form, store.id))

        if service.shards.fans_out(request.scope):
            asked_text = (
                hidden_query_text(query, hidden) if isinstance(query, KeyQuery) else repr(query)
            )
            paging = Paging(
                *(from_, to, order == "newest", limit, most),
                cursor_at=lambda place, store_id: store_cursor.mark(
                    encode_cursor(place, asked_text), store_id
                ),
                cursor_of=lambda parts: shard_cursor.encode(parts, asked_text),
            )
            begun = shard_cursor.decode(cursor, asked_text)
            return json_answer(await self._over_shards(request, look, begun, paging))
        return json_answer(await service.run(lambda: look(cursor)))

    async def _over_shards(
        self, request: Request, look: Callable[[str | None], bytes], begun: Parts, paging: Paging
    ) -> bytes:
        service = self._service
        cursors = {shard: part.cursor for shard, part in begun.items()}
        async with service.shards.fan_out(
            request,
            partial(service.run, lambda: look(cursors.get(service.shards.own))),
            changed=lambda shard: {"cursor": cursors.get(shard)},
            skip={shard for shard, part in begun.items() if part.is_over},
        ) as spread:
            return await service.run_in_turn(lambda: merging.messages(spread, begun, paging))

    def _by_key(
        self, query: KeyQuery, hidden: tuple[str, ...], limit: int, most: int, cursor: str | None
    ) -> KeyAnswer:
        """In small steps, so that few large records are held beyond ``most`` bytes."""
        step = min(KEY_PAGE, 1 + most // KEY_RECORD_MAX)

        def page(count: int, after: str | None) -> KeyAnswer:
            return hidden_by_key(self._service.lookups, query, hidden, limit=count, cursor=after)

        answer = page(min(limit, step), cursor)
        size = sum(each.size for each in answer.records)
        while answer.cursor is not None and len(answer.records) < limit and size < most:
            more = page(min(limit - len(answer.records), step), answer.cursor)
            size += sum(each.size for each in more.records)
            answer = _joined(answer, more)
        return answer


def _joined(first: KeyAnswer, more: KeyAnswer) -> KeyAnswer:
    """Two pages as one; complete is what the last one says, since it looked at the rest."""
    scanned, candidates = first.scanned, first.scanned.candidates + more.scanned.candidates
    return KeyAnswer(
        first.records + more.records,
        [*first.unreadable, *more.unreadable],
        more.cursor,
        more.complete,
        Scanned(scanned.from_ms, scanned.to_ms, candidates, scanned.min_offset, scanned.max_offset),
    )


def _download(name: str, body: bytes, range_header: str | None) -> Response:
    """A file of that name; a browser is not to guess what it is."""
    headers = {
        "content-disposition": f'attachment; filename="{name}.bin"',
        "x-content-type-options": "nosniff",
        "accept-ranges": "bytes",
    }
    found = parse_range(range_header, len(body))
    if found is None:
        return Response(body, headers=headers, media_type="application/octet-stream")
    start, stop = found
    headers["content-range"] = f"bytes {start}-{stop - 1}/{len(body)}"
    return Response(body[start:stop], 206, headers=headers, media_type="application/octet-stream")
