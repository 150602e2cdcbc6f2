"""Routes of consumer groups and their offsets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Body, Query, Request, Response

from mqstore.service.app import Api, GroupName, json_text
from mqstore.service.endpoint import Endpoint
from mqstore.service.paging import Page, begin_of, next_cursor
from mqstore.storage import admin, topic_names
from mqstore.storage.errors import GroupUnknown
from mqstore.wire import groups as operations
from mqstore.wire.groups import (
    Group,
    GroupConfig,
    GroupOffset,
    GroupOffsets,
    Groups,
    GroupSpec,
    OffsetChange,
    OffsetCommit,
    OffsetReset,
    OffsetsReset,
)
from mqstore.wire.operation import Role
from mqstore.wire.parameters import ListParameters
from mqstore.writer.fan_out import apply_to_all_shards, delete_on_all_shards
from mqstore.writer.service import WriterService

_GROUPS: Final = "groups"
"""The list that a cursor belongs to."""


class GroupRoutes:
    """Serves groups: consumers commit offsets; administrators create, change, delete and reset."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        self._auth = api.auth
        Endpoint(operations.GROUPS, self.groups).add(api)
        Endpoint(operations.GROUP, self.group).add(api)
        Endpoint(operations.PUT_GROUP, self.put_group).add(api)
        Endpoint(operations.DELETE_GROUP, self.delete_group).add(api)
        Endpoint(operations.OFFSETS, self.group_offsets).add(api)
        Endpoint(operations.COMMIT_OFFSETS, self.commit_offsets).add(api)
        Endpoint(operations.RESET_OFFSETS, self.reset_offsets).add(api)

    async def groups(self, page: Page) -> Response:
        """All groups that were created or have offsets, by name, in pages."""
        return json_text(await asyncio.to_thread(self._encode_page, page))

    def _encode_page(self, page: ListParameters) -> str:
        found, is_more = self._service.store.groups.page(begin_of(page, _GROUPS), page.limit)
        names = [each.config.name for each in found]
        groups = Groups(
            groups=tuple([group_view(each) for each in found]),
            next=next_cursor(names, _GROUPS, is_more=is_more),
        )
        return groups.model_dump_json(by_alias=True)

    async def group(self, group: GroupName) -> Group:
        """The configuration of a group, and the topics that it consumes."""
        return group_view(self._service.store.groups.get(group))

    async def put_group(
        self,
        group: GroupName,
        request: Request,
        response: Response,
        spec: Annotated[GroupSpec | None, Body()] = None,
    ) -> Group:
        """Creates or changes a group, idempotently: 201 if it was created, 200 if it existed. A
        group may consume without being created. The change applies to all shards; `shards` names
        those that could not be reached."""

        async def here() -> Group:
            """Put the group on this shard."""
            return await self._put(group, response, spec or GroupSpec())

        return await apply_to_all_shards(
            self._service.shards, request, Group, here, lambda made: made[0]
        )

    async def _put(self, group: str, response: Response, spec: GroupSpec) -> Group:
        store = self._service.store
        given = spec.model_dump(exclude_none=True)
        topic_names.check_own_group(group)
        try:
            is_new = not store.groups.get(group).is_configured
        except GroupUnknown:
            is_new = True
        if is_new:
            response.status_code = HTTPStatus.CREATED
        put = partial(store.groups.put, group, lambda known: replace(known, **given))
        return group_view(await asyncio.to_thread(put))

    async def delete_group(
        self,
        group: GroupName,
        request: Request,
        wanted: Annotated[operations.DeletionParameters, Query()],
    ) -> Response:
        """Deletes a group, like RocketMQ's deleteSubscriptionGroup; without `cleanOffset` its
        offsets stay. The deletion applies to all shards; 200 with `shards` if one of them could not
        be reached."""

        async def here() -> None:
            """Delete the group on this shard."""
            delete = self._service.store.groups.delete
            await asyncio.to_thread(delete, group, with_offsets=wanted.clean_offset)

        return await delete_on_all_shards(self._service.shards, request, here)

    async def group_offsets(
        self,
        group: GroupName,
        request: Request,
        page: Annotated[operations.OffsetsParameters, Query()],
    ) -> GroupOffsets:
        """Offsets by topic, shard and queue, in pages. A queue without an offset is consumed from
        its first message."""
        topic = page.topic
        scope = f"offsets of {group} {topic or ''}"
        after = _after_on_shard(begin_of(page, scope), self._shard)

        def read() -> GroupOffsets:
            """Return a page of the offsets of this shard."""
            offsets = self._service.store.offsets
            found, is_more = offsets.page(group, topic, after=after, limit=page.limit)
            listed = [_offset_view(each, self._shard) for each in found]
            return _page_of_offsets(group, scope, listed, is_more=is_more)

        def join(found: Sequence[GroupOffsets]) -> GroupOffsets:
            """Return the first ones of the pages of all shards."""
            listed = sorted((offset for each in found for offset in each.offsets), key=_place_of)
            is_more = len(listed) > page.limit or any(each.next for each in found)
            return _page_of_offsets(group, scope, listed[: page.limit], is_more=is_more)

        return await apply_to_all_shards(
            self._service.shards, request, GroupOffsets, partial(asyncio.to_thread, read), join
        )

    async def commit_offsets(
        self, group: GroupName, commit: OffsetCommit, request: Request
    ) -> GroupOffsets:
        """Commits offsets in memory, then replies. They are on disk within
        flushConsumerOffsetInterval, as in RocketMQ: after a kill some messages may be consumed
        again. An offset lies between 0 and the queue's end; one below the committed offset needs
        `allowBack`. In an ordered group each offset needs the `epoch` of its queue. RocketMQ's own
        groups (`CID_RMQ_SYS_…`) need the role system. With several shards
        `?shard=` names the shard of the queues."""
        self._service.shards.require_shard(request.scope)
        if topic_names.is_system_group(group):
            self._auth.check(request.scope["headers"], Role.SYSTEM)
        commits = {
            admin.Commit(each.topic, each.queue_id, each.offset): each.epoch
            for each in commit.offsets
        }
        self._service.require_writable()
        engine = self._service.consumers.engine
        found = await asyncio.to_thread(engine.commit, group, commits, allow_back=commit.allow_back)
        self._service.consumers.lines.wake(group, only_full=False)
        return GroupOffsets(
            group=group, offsets=tuple([_offset_view(each, self._shard) for each in found])
        )

    async def reset_offsets(
        self, group: GroupName, reset: OffsetReset, request: Request
    ) -> OffsetsReset:
        """Resets offsets to the earliest stored message, behind the latest one, to the first one
        stored at or after a time, or to those of another group. Stop consumers before, since
        running ones continue from the offsets that they hold. The reply is sent once the offsets
        are on disk. The reset applies to all shards, unless `queueIds` or `?shard=` select one."""
        if topic_names.is_system_group(group):
            self._auth.check(request.scope["headers"], Role.SYSTEM)
        if reset.queue_ids is not None:
            self._service.shards.require_shard(request.scope)

        async def here() -> OffsetsReset:
            """Reset the offsets of this shard."""
            return await self._reset(group, reset)

        done = await apply_to_all_shards(
            self._service.shards, request, OffsetsReset, here, _join_resets
        )
        if reset.source is not None and not done.queues:
            raise GroupUnknown(f"group {reset.source} has no offset in topic {reset.topic}")
        return done

    async def _reset(self, group: str, reset: OffsetReset) -> OffsetsReset:
        store = self._service.store
        to = admin.Position(reset.to)
        plan = partial(store.offsets.plan_reset, group, reset.topic, to)
        source = reset.source or ""
        changes = await asyncio.to_thread(plan, reset.timestamp or 0, reset.queue_ids, source)
        if not reset.dry_run:
            store.groups.use(group)
            await asyncio.to_thread(store.offsets.apply, group, changes)
        return OffsetsReset(
            group=group,
            topic=reset.topic,
            dry_run=reset.dry_run,
            queues=tuple([_change_view(each, self._shard) for each in changes]),
        )


def group_view(found: admin.Group) -> Group:
    """Return the view of a group."""
    return Group(
        group=found.config.name,
        configured=found.is_configured,
        config=GroupConfig.model_validate(found.config),
        topics=tuple(found.topics),
    )


def _place_of(offset: GroupOffset) -> tuple[str, int, int]:
    return offset.topic, offset.shard or 0, offset.queue_id


def _page_of_offsets(
    group: str, scope: str, listed: Sequence[GroupOffset], *, is_more: bool
) -> GroupOffsets:
    names = [" ".join(map(str, _place_of(each))) for each in listed[-1:]]
    return GroupOffsets(
        group=group, offsets=tuple(listed), next=next_cursor(names, scope, is_more=is_more)
    )


def _after_on_shard(name: str, shard: int) -> tuple[str, float]:
    """The topic and queue id behind which a page begins on a shard; ``name`` is that of the
    cursor."""
    if not name:
        return "", -1
    topic, last_shard, queue_id = name.rsplit(" ", 2)
    if int(last_shard) != shard:
        return topic, -1 if shard > int(last_shard) else math.inf
    return topic, int(queue_id)


def _join_resets(done: Sequence[OffsetsReset]) -> OffsetsReset:
    queues = [queue for each in done for queue in each.queues]
    queues.sort(key=lambda each: (each.shard, each.queue_id))
    return done[0].model_copy(update={"queues": tuple(queues)})


def _offset_view(found: admin.GroupOffset, shard: int) -> GroupOffset:
    return GroupOffset(
        topic=found.topic,
        shard=shard,
        queue_id=found.queue_id,
        committed=found.committed,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        lag=found.lag,
    )


def _change_view(change: admin.OffsetChange, shard: int) -> OffsetChange:
    return OffsetChange(
        shard=shard,
        queue_id=change.queue_id,
        before=change.before,
        after=change.after,
        min_offset=change.min_offset,
        max_offset=change.max_offset,
    )
