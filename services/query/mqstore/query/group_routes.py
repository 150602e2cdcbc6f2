"""Routes of the lag of consumer groups, in messages and in time.

The offsets are those that store-writer holds in memory. While no store-writer replies, they are
those of ``consumerOffset.json``, which a writer or a broker saves. Then each reply has the age of
the file and the state of the writer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import merging, replies
from mqstore.query.committed_offsets import ByQueue
from mqstore.query.lag_states import LagDivision
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service.app import Api, GroupName
from mqstore.service.endpoint import Endpoint
from mqstore.service.paging import begin_of
from mqstore.storage import topic_names
from mqstore.storage.admin import ConsumerOffsets, Source, TableSnapshot
from mqstore.storage.errors import GroupUnknown
from mqstore.storage.formats import encode_name_cursor
from mqstore.storage.reads import GroupLag, QueueLag, TopicLag
from mqstore.wire import lags as operations


class GroupRoutes:
    """Serves the lag of one group and of all groups."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.LAGS, self.lags).add(api)
        Endpoint(operations.LAG, self.lag).add(api)

    async def lags(
        self,
        request: Request,
        wanted: Annotated[operations.LagsParameters, Query()],
    ) -> Response:
        """Groups that have committed an offset, sorted by name, or only those that consume `topic`.
        A retry topic (`%RETRY%GROUP`) is one of a group's topics. Commits that store-writer has
        acknowledged count. If it does not reply within two seconds, the offsets are those of the
        saved file, as `offsets` says."""
        topic, limit = wanted.topic, wanted.limit
        service, cursor_scope = self._service, f"lags of {topic}"
        after = begin_of(wanted, cursor_scope)

        def encode_page(committed: ByQueue | None, division: LagDivision) -> bytes:
            """Encode a page of this shard's groups. Runs in the pool."""
            offsets = service.group_offsets()
            table = offsets.table if committed is None else offsets.table.with_all(committed)
            groups = table.groups()
            if topic is not None:
                groups = {name: [topic] for name, topics in groups.items() if topic in topics}
            lags = service.group_lags(table)
            found, last = lags.page(groups, limit=limit, after=after)
            now_ms = service.now_ms()
            return msgspec.json.encode(
                replies.GroupLags(
                    groups=tuple([_sum_view(each, division, now_ms) for each in found]),
                    next=None if last is None else encode_name_cursor(last, cursor_scope),
                    offsets=source_view(service, offsets, is_current=committed is not None),
                    shard=self._shard,
                )
            )

        async def own() -> bytes:
            """Return the page of this shard."""
            of_writer = service.committed_offsets
            committed, states = await asyncio.gather(
                of_writer.read_all(), of_writer.read_states(None)
            )
            return await service.run(partial(encode_page, committed, LagDivision(states)))

        _ = service.reader
        if service.shards.fans_out(request.scope):
            async with service.shards.fan_out(request, own) as spread:
                cursor_of = partial(encode_name_cursor, query=cursor_scope)
                merge = partial(merging.lags, spread, limit, cursor_of)
                return json_reply(await service.run_admitted(merge))
        return json_reply(await own())

    async def lag(
        self,
        group: GroupName,
        request: Request,
        wanted: Annotated[operations.LagParameters, Query()],
    ) -> Response:
        """Lag of one group, by topic and queue. `lag` is the number of messages between the
        committed offset and the end of the queue, without expired ones. A queue without a committed
        offset counts from its first message. `lagMs` is the age of the oldest of these messages.
        Commits that store-writer has acknowledged count. If it does not reply, the offsets are
        those of the saved file, as `offsets` says. `states` divides the lag of a shared group."""
        topic_names.check_group(group)
        service, topic = self._service, wanted.topic
        committed, states = await asyncio.gather(
            service.committed_offsets.read_group(group, request.scope),
            service.committed_offsets.read_states(group),
        )

        def encode_lag() -> bytes:
            """Encode the lag of the group on this shard. Runs in the pool."""
            offsets = service.group_offsets()
            table = offsets.table
            if committed is not None:
                rows = ((each.topic, each.queue_id, each.offset) for each in committed)
                table = table.with_group(group, rows)
            topics = sorted(table.groups().get(group, []))
            if not topics:
                raise GroupUnknown(f"group {group} has committed no offset")
            selected = topics if topic is None else [topic]
            found = service.group_lags(table).group(group, selected)
            now_ms = service.now_ms()
            return msgspec.json.encode(
                replies.GroupLag(
                    group=found.group,
                    lag=found.lag,
                    dead_letters=found.dead_letters,
                    states=LagDivision(states).of(found),
                    topics=tuple([_topic_view(each, self._shard, now_ms) for each in found.topics]),
                    offsets=source_view(service, offsets, is_current=committed is not None),
                    shard=self._shard,
                )
            )

        _ = service.reader
        if service.shards.fans_out(request.scope):
            async with service.shards.fan_out(request, lambda: service.run(encode_lag)) as spread:
                return json_reply(await service.run_admitted(lambda: merging.lag(spread)))
        return json_reply(await service.run(encode_lag))


def source_view(
    service: QueryService, offsets: TableSnapshot[ConsumerOffsets], *, is_current: bool = False
) -> replies.OffsetsSource:
    """Return the source and the age of offsets. ``is_current``: they are store-writer's."""
    if is_current:
        return replies.OffsetsSource(
            source="writer", saved_at=None, age_ms=0, writer=service.writer.refresh().value
        )
    source, saved = offsets.table.source, offsets.saved_at_ms
    return replies.OffsetsSource(
        source="none" if source is Source.NEW else source.value,
        saved_at=saved,
        age_ms=None if saved is None else max(0, service.now_ms() - saved),
        writer=service.writer.refresh().value,
    )


def _sum_view(found: GroupLag, division: LagDivision, now_ms: int) -> replies.GroupSum:
    topics = [
        replies.TopicSum(
            topic=each.topic,
            lag=each.lag,
            expired=each.expired,
            expired_total=each.expired_total,
            lag_ms=each.age_ms(now_ms),
        )
        for each in found.topics
    ]
    return replies.GroupSum(
        group=found.group,
        lag=found.lag,
        dead_letters=found.dead_letters,
        states=division.of(found),
        topics=tuple(topics),
    )


def _topic_view(found: TopicLag, shard: int, now_ms: int) -> replies.TopicLag:
    return replies.TopicLag(
        topic=found.topic,
        lag=found.lag,
        expired=found.expired,
        expired_total=found.expired_total,
        lag_ms=found.age_ms(now_ms),
        queues=tuple([_queue_view(each, shard, now_ms) for each in found.queues]),
    )


def _queue_view(found: QueueLag, shard: int, now_ms: int) -> replies.QueueLag:
    stand = found.stand
    return replies.QueueLag(
        queue_id=stand.queue_id,
        shard=shard,
        committed=stand.committed,
        min_offset=stand.min_offset,
        max_offset=stand.max_offset,
        lag=stand.lag,
        expired=found.expired,
        lag_ms=found.age_ms(now_ms),
        next_store_timestamp=found.next_ms,
        last_store_timestamp=found.consumed_ms,
    )
