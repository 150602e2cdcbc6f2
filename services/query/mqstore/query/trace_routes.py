"""A message's way through the store: its copies, and which groups are past them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from fastapi import Query, Response

from mqstore.query import group_routes, views
from mqstore.query import trace_examples as examples
from mqstore.query.message_routes import RECORD_PROBLEMS, MessageId, UniqueKeyTopic
from mqstore.query.routes import Route, json_answer
from mqstore.query.service import QueryService
from mqstore.query.trace_models import (
    CopyView,
    GroupStandView,
    MessageTraceView,
    TracesView,
    TraceView,
)
from mqstore.service import problems
from mqstore.service.app import Api, TopicName
from mqstore.storage.lookup.message_trace import Copy, MessageTraces, Trace
from mqstore.storage.paths import segment_name

TRACES_MAX: Final = 64
TRACES_DEFAULT: Final = 16


class TraceRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        Route(
            "/v1/messages/{id}/trace",
            self.trace,
            "A message's way: where its copies stand, which groups are past them",
            "MessageTraceView",
            examples.TRACE,
            (problems.BAD_MESSAGE_ID, *RECORD_PROBLEMS),
            "messages",
        ).add(api)
        Route(
            "/v1/topics/{topic}/traces",
            self.traces,
            "The ways of all messages with a key",
            "TracesView",
            examples.TRACES,
            (problems.BAD_CURSOR, problems.TOPIC_UNKNOWN),
            "messages",
        ).add(api)

    async def trace(self, message_id: MessageId, topic: UniqueKeyTopic = None) -> Response:
        """All records that have the message's unique key: delayed and half ones, the message, its
        retries and dead letters, however they are called. A group has `consumed` a copy when its
        committed offset is past it; `offsets` says how old what is known of that is."""
        service = self._service
        lookups = service.lookups

        def find(traces: MessageTraces) -> Trace:
            if topic is not None:
                return traces.by_unique_key(topic, message_id)
            return traces.of(lookups.by_message_id(message_id))

        return json_answer(await service.run(lambda: self._one(find)))

    def _one(self, find: Callable[[MessageTraces], Trace]) -> bytes:
        service = self._service
        offsets = service.group_offsets()
        trace = find(service.traces(offsets.table))
        source = group_routes.source_view(service, offsets)
        return msgspec.json.encode(MessageTraceView(_trace_view(trace), source, self._shard))

    async def traces(
        self,
        topic: TopicName,
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
            str | None, Query(max_length=200, description="`next` of the answer before.")
        ] = None,
    ) -> Response:
        """Newest first. A message whose copies lie on two pages is told on both."""
        service = self._service
        _ = service.reader

        def look() -> bytes:
            service.require_topic(topic)
            offsets = service.group_offsets()
            page = service.traces(offsets.table).by_key(topic, key, limit=limit, cursor=cursor)
            return msgspec.json.encode(
                TracesView(
                    [_trace_view(each) for each in page.traces],
                    page.cursor,
                    page.complete,
                    group_routes.source_view(service, offsets),
                    self._shard,
                )
            )

        return json_answer(await service.run(look))


def _trace_view(found: Trace) -> TraceView:
    shown = views.header(found.copies[0].record)
    return TraceView(
        found.topic,
        found.uniq_key,
        shown.keys,
        shown.tags,
        shown.born_timestamp,
        views.host_text(found.copies[0].record.born_host),
        [_copy_view(each) for each in found.copies],
        [views.unreadable(each) for each in found.unreadable],
        found.complete,
    )


def _copy_view(copy: Copy) -> CopyView:
    record, place = copy.record, copy.place
    entry = None if place is None else views.queue_entry(record, place.entry, place.unit)
    return CopyView(
        copy.kind.value,
        copy.state.value,
        copy.why,
        copy.group,
        copy.due_ms,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.size,
        record.offset_message_id,
        copy.origin_message_id,
        record.store_timestamp_ms,
        views.host_text(record.store_host),
        record.reconsume_times,
        None if place is None else segment_name(place.segment),
        entry is not None and entry.names_it,
        [GroupStandView(each.group, each.committed, each.has_passed) for each in copy.stands],
    )
