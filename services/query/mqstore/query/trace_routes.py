"""A message's way through the store: its copies, and which groups are past them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import group_routes, merging, replies, shard_cursor, store_cursor, views
from mqstore.query.message_routes import MessageId, UniqueKeyTopic
from mqstore.query.routes import json_answer
from mqstore.query.service import QueryService
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.forwarding import ForwardedRequest, RelayedResponse
from mqstore.service.shards import LocalReply, ShardReplies
from mqstore.storage.formats import decode_message_id, segment_name
from mqstore.storage.reads import Copy, GroupStand, MessageTraces, Trace
from mqstore.wire.operations import lookups as operations

TRACES_MAX: Final = 64
TRACES_DEFAULT: Final = 16


class TraceRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        Endpoint(operations.MESSAGE_TRACE, self.trace).add(api)
        Endpoint(operations.TRACES, self.traces).add(api)

    async def trace(
        self, message_id: MessageId, request: Request, topic: UniqueKeyTopic = None
    ) -> Response:
        """All records that have the message's unique key: delayed and half ones, the message, its
        retries and dead letters, however they are called. A group has `consumed` a copy when its
        committed offset is past it; `offsets` says how old what is known of that is."""
        service = self._service

        def find(traces: MessageTraces) -> Trace:
            if topic is not None:
                return traces.by_unique_key(topic, message_id)
            return traces.of(service.lookups.by_message_id(message_id))

        own = partial(service.run, lambda: self._one(find))
        if service.shards.fans_out(request.scope):
            return json_answer(await self._over_shards(request, own, message_id, topic))
        return json_answer(await own())

    async def _over_shards(
        self, request: Request, own: LocalReply, message_id: str, topic: str | None
    ) -> bytes:
        """An offset message id is of one shard, which tells the key that all are asked for."""
        first, target = ShardReplies(), None
        if topic is None:
            first = await self._where_it_is(request, own, message_id)
            found = merging.trace(first)
            key, origin = found.trace.uniq_key, found.trace.topic
            if key is None:
                return msgspec.json.encode(found)
            target = f"/v1/messages/{quote(key, safe='')}/trace?{urlencode({'topic': origin})}"
            find = partial(self._one, lambda traces: traces.by_unique_key(origin, key))
            own = partial(self._service.run, find)
        everywhere = self._service.shards.fan_out
        async with everywhere(request, own, target=target, skip=first.answers) as spread:
            spread.answers |= first.answers
            merge = partial(merging.trace, spread)
            return msgspec.json.encode(await self._service.run_in_turn(merge))

    async def _where_it_is(
        self, request: Request, own: LocalReply, message_id: str
    ) -> ShardReplies:
        """What the shard says whose STOREHOST an id names. Raises Problem, RelayedResponse."""
        shards = self._service.shards
        entry = shards.members.of_host(decode_message_id(message_id)[0])
        if entry is None or entry.shard == shards.own:
            return ShardReplies({shards.own: await own()})
        reply = await shards.reply(entry, ForwardedRequest.of(request.scope, str(shards.own)))
        if reply.status != HTTPStatus.OK:
            media_type = reply.content_type.decode()
            raise RelayedResponse(Response(reply.body, reply.status, media_type=media_type))
        return ShardReplies({entry.shard: reply.body})

    def _one(self, find: Callable[[MessageTraces], Trace]) -> bytes:
        service = self._service
        offsets = service.group_offsets()
        trace = find(service.traces(offsets.table))
        source = group_routes.source_view(service, offsets)
        return msgspec.json.encode(
            replies.MessageTrace(
                trace=_trace_view(trace, self._shard), offsets=source, shard=self._shard
            )
        )

    async def traces(
        self,
        topic: TopicName,
        request: Request,
        key: Annotated[
            str,
            Query(
                min_length=1,
                max_length=32767,
                description="A unique key, or one of KEYS.",
                openapi_examples={"a key": {"value": "order-1"}},
            ),
        ],
        limit: Annotated[
            int, Query(ge=1, le=TRACES_MAX, description="Records that are begun with, at most.")
        ] = TRACES_DEFAULT,
        cursor: Annotated[
            str | None,
            Query(max_length=shard_cursor.LENGTH_MAX, description="`next` of the answer before."),
        ] = None,
    ) -> Response:
        """Newest first. A message whose copies lie on two pages is told on both. Of several shards
        `limit` is of each."""
        service = self._service
        _ = service.reader

        def look(cursor: str | None) -> bytes:
            service.require_topic(topic)
            offsets, store_id = service.group_offsets(), service.store.id
            begun = None if cursor is None else store_cursor.unmark(cursor, store_id)
            page = service.traces(offsets.table).by_key(topic, key, limit=limit, cursor=begun)
            return msgspec.json.encode(
                replies.Traces(
                    traces=tuple([_trace_view(each, self._shard) for each in page.traces]),
                    next=None if page.cursor is None else store_cursor.mark(page.cursor, store_id),
                    complete=page.complete,
                    offsets=group_routes.source_view(service, offsets),
                    shard=self._shard,
                )
            )

        if not service.shards.fans_out(request.scope):
            return json_answer(await service.run(lambda: look(cursor)))
        asked = f"traces of {topic} {key}"
        begun = shard_cursor.decode(cursor, asked)
        cursors = {shard: part.cursor for shard, part in begun.items()}
        async with service.shards.fan_out(
            request,
            partial(service.run, lambda: look(cursors.get(self._shard))),
            changed=lambda shard: {"cursor": cursors.get(shard)},
            skip={shard for shard, part in begun.items() if part.is_over},
        ) as spread:
            cursor_of = partial(shard_cursor.encode, query=asked)
            merge = partial(merging.traces, spread, begun, cursor_of)
            return json_answer(await service.run_in_turn(merge))


def _trace_view(found: Trace, shard: int) -> replies.Trace:
    shown = views.header(found.copies[0].record)
    return replies.Trace(
        topic=found.topic,
        uniq_key=found.uniq_key,
        keys=shown.keys,
        tags=shown.tags,
        born_timestamp=shown.born_timestamp,
        born_host=views.host_text(found.copies[0].record.born_host),
        copies=tuple([_copy_view(each, shard) for each in found.copies]),
        unreadable=tuple([views.unreadable(each) for each in found.unreadable]),
        complete=found.complete,
    )


def _copy_view(copy: Copy, shard: int) -> replies.MessageCopy:
    record, place = copy.record, copy.place
    entry = None if place is None else views.queue_entry(record, place.entry, place.unit)
    return replies.MessageCopy(
        kind=copy.kind.value,
        state=copy.state.value,
        why=copy.why,
        group=copy.group,
        due_at=copy.due_ms,
        topic=record.topic,
        shard=shard,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        size=record.size,
        offset_msg_id=record.offset_message_id,
        origin_message_id=copy.origin_message_id,
        store_timestamp=record.store_timestamp_ms,
        store_host=views.host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        segment=None if place is None else segment_name(place.segment),
        in_queue=entry is not None and entry.names_it,
        groups=tuple([_stand_view(each) for each in copy.stands]),
        checked_by=views.checked_by(record),
    )


def _stand_view(stand: GroupStand) -> replies.GroupStand:
    return replies.GroupStand(
        group=stand.group, committed=stand.committed, consumed=stand.has_passed
    )
