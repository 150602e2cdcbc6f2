"""Routes of the trace of a message: its copies in the store, and the groups that consumed them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import group_routes, merging, replies, store_cursor, views
from mqstore.query.message_routes import MessageId
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service import message_views, shard_cursor
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint
from mqstore.service.forwarding import ForwardedRequest, RelayedResponse
from mqstore.service.message_bodies import checked_by
from mqstore.service.shards import LocalReply, ShardReplies
from mqstore.storage.formats import decode_message_id, segment_name
from mqstore.storage.reads import Copy, GroupStand, MessageTraces, Trace
from mqstore.wire import traces as operations


class TraceRoutes:
    """Serves the trace of one message, and the traces of messages under a key."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.MESSAGE_TRACE, self.trace).add(api)
        Endpoint(operations.TRACES, self.traces).add(api)

    async def trace(
        self,
        message_id: MessageId,
        wanted: Annotated[operations.TraceParameters, Query()],
        request: Request,
    ) -> Response:
        """All records with the message's unique key: delayed and half messages, the message itself,
        its retries and dead letters, whatever topic they are in. A group has `consumed` a copy when
        its committed offset is behind it; `offsets` has the source and age of these offsets."""
        service, topic = self._service, wanted.topic

        def find(traces: MessageTraces) -> Trace:
            """Find the trace on this shard. Runs in the pool."""
            if topic is not None:
                return traces.by_unique_key(topic, message_id)
            return traces.of(service.lookups.by_message_id(message_id))

        own = partial(service.run, lambda: self._encode_trace(find))
        if service.shards.fans_out(request.scope):
            return json_reply(await self._over_shards(request, own, message_id, topic))
        return json_reply(await own())

    async def _over_shards(
        self, request: Request, own: LocalReply, message_id: str, topic: str | None
    ) -> bytes:
        """Encode the trace over all shards.

        An offset message id belongs to one shard, whose reply has the unique key that all shards
        are then queried for.
        """
        first, target = ShardReplies(), None
        if topic is None:
            first = await self._fetch_by_message_id(request, own, message_id)
            found = merging.trace(first)
            key, origin = found.trace.uniq_key, found.trace.topic
            if key is None:
                return msgspec.json.encode(found)
            target = f"/v1/messages/{quote(key, safe='')}/trace?{urlencode({'topic': origin})}"
            find = partial(self._encode_trace, lambda traces: traces.by_unique_key(origin, key))
            own = partial(self._service.run, find)
        fan_out = self._service.shards.fan_out
        async with fan_out(request, own, target=target, skip=first.answers) as spread:
            spread.answers |= first.answers
            merge = partial(merging.trace, spread)
            return msgspec.json.encode(await self._service.run_admitted(merge))

    async def _fetch_by_message_id(
        self, request: Request, own: LocalReply, message_id: str
    ) -> ShardReplies:
        """Return the reply of the shard whose STOREHOST is in the id.

        Raises Problem, RelayedResponse.
        """
        shards = self._service.shards
        entry = shards.members.of_host(decode_message_id(message_id)[0])
        if entry is None or entry.shard == shards.own:
            return ShardReplies({shards.own: await own()})
        reply = await shards.reply(entry, ForwardedRequest.of(request.scope, str(shards.own)))
        if reply.status != HTTPStatus.OK:
            media_type = reply.content_type.decode()
            raise RelayedResponse(Response(reply.body, reply.status, media_type=media_type))
        return ShardReplies({entry.shard: reply.body})

    def _encode_trace(self, find: Callable[[MessageTraces], Trace]) -> bytes:
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
        wanted: Annotated[operations.TracesParameters, Query()],
    ) -> Response:
        """Traces of the messages under a key, newest first. A message whose copies lie on two pages
        is on both. With several shards `limit` applies to each."""
        key, limit, cursor = wanted.key, wanted.limit, wanted.cursor
        service = self._service
        _ = service.reader

        def encode_page(cursor: str | None) -> bytes:
            """Encode a page of this shard's traces. Runs in the pool."""
            service.store.require_topic(topic)
            offsets, store_id = service.group_offsets(), service.store.id
            start = None if cursor is None else store_cursor.remove_store_id(cursor, store_id)
            page = service.traces(offsets.table).by_key(topic, key, limit=limit, cursor=start)
            return msgspec.json.encode(
                replies.Traces(
                    traces=tuple([_trace_view(each, self._shard) for each in page.traces]),
                    next=None
                    if page.cursor is None
                    else store_cursor.add_store_id(page.cursor, store_id),
                    complete=page.complete,
                    offsets=group_routes.source_view(service, offsets),
                    shard=self._shard,
                )
            )

        if not service.shards.fans_out(request.scope):
            return json_reply(await service.run(lambda: encode_page(cursor)))
        scope = f"traces of {topic} {key}"
        begun = shard_cursor.decode(cursor, scope)
        cursors = {shard: position.cursor for shard, position in begun.items()}
        async with service.shards.fan_out(
            request,
            partial(service.run, lambda: encode_page(cursors.get(self._shard))),
            changed=lambda shard: {"cursor": cursors.get(shard)},
            skip={shard for shard, position in begun.items() if position.is_finished},
        ) as spread:
            cursor_of = partial(shard_cursor.encode, query=scope)
            merge = partial(merging.traces, spread, begun, cursor_of)
            return json_reply(await service.run_admitted(merge))


def _trace_view(found: Trace, shard: int) -> replies.Trace:
    shown = views.header(found.copies[0].record)
    return replies.Trace(
        topic=found.topic,
        uniq_key=found.uniq_key,
        keys=shown.keys,
        tags=shown.tags,
        born_timestamp=shown.born_timestamp,
        born_host=message_views.host_text(found.copies[0].record.born_host),
        copies=tuple([_copy_view(each, shard) for each in found.copies]),
        unreadable=tuple([message_views.unreadable(each) for each in found.unreadable]),
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
        store_host=message_views.host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        segment=None if place is None else segment_name(place.segment),
        in_queue=entry is not None and entry.names_it,
        groups=tuple([_stand_view(each) for each in copy.stands]),
        checked_by=checked_by(record),
    )


def _stand_view(stand: GroupStand) -> replies.GroupStand:
    return replies.GroupStand(
        group=stand.group, committed=stand.committed, consumed=stand.has_passed
    )
