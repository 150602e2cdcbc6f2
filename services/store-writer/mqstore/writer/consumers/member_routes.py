"""The endpoints of members of ordered groups. Each shard assigns its own queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Request, Response

from mqstore.service.app import Api, GroupName
from mqstore.service.endpoint import Endpoint
from mqstore.storage import topic_names
from mqstore.storage.shared_groups import MemberView
from mqstore.wire import members as operations
from mqstore.wire.members import LeavingQueue, Member, MemberQueue, Members, MemberSpec
from mqstore.writer.fan_out import apply_to_all_shards, delete_on_all_shards
from mqstore.writer.service import WriterService

MemberName = Annotated[
    str,
    Path(
        description="Consumer of the group: letters, digits, `.`, `_` and `-`.",
        pattern=operations.MEMBER_PATTERN,
        openapi_examples={"a member": {"value": "billing-0"}},
    ),
]


class MemberRoutes:
    """Serves members: they join, renew and leave."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.MEMBERS, self.members).add(api)
        Endpoint(operations.JOIN, self.join).add(api)
        Endpoint(operations.LEAVE, self.leave).add(api)

    async def members(self, group: GroupName, request: Request) -> Members:
        """The members with their queues and epochs. A shared group has none."""

        async def here() -> Members:
            """Return the members in this shard."""
            self._service.require_writable()
            found = await asyncio.to_thread(self._service.consumers.engine.members, group)
            return Members(group=group, members=tuple([self._view(group, each) for each in found]))

        return await apply_to_all_shards(
            self._service.shards, request, Members, here, _join_members
        )

    async def join(
        self, group: GroupName, member: MemberName, spec: MemberSpec, request: Request
    ) -> Member:
        """Makes a consumer a member of the group, which is ordered from then on, or renews its
        session; send it every third of `sessionS`. The queues of the topics are divided evenly
        among the members. A member receives with `member` in `:receive`. A queue goes to another
        member when its messages are settled, or the session of the earlier member ends. Members,
        queues and epochs are on disk at the reply: they outlive a restart of store-writer."""

        async def here() -> Member:
            """Join in this shard."""
            topic_names.check_own_group(group)
            self._service.require_writable()
            consumers = self._service.consumers
            found = await asyncio.to_thread(
                consumers.engine.join, group, member, spec.topics, spec.session_s
            )
            consumers.lines.wake(group, only_full=False)
            return self._view(group, found)

        return await apply_to_all_shards(self._service.shards, request, Member, here, _join)

    async def leave(self, group: GroupName, member: MemberName, request: Request) -> Response:
        """Ends the session of a member: its queues go to others at once, and its messages that are
        not acknowledged are delivered again. May be repeated. 200 with `shards` if a shard could
        not be reached."""

        async def here() -> None:
            """Leave in this shard."""
            self._service.require_writable()
            consumers = self._service.consumers
            await asyncio.to_thread(consumers.engine.leave, group, member)
            consumers.lines.wake(group, only_full=False)

        return await delete_on_all_shards(self._service.shards, request, here)

    def _view(self, group: str, found: MemberView) -> Member:
        shard = self._service.settings.shard
        return Member(
            group=group,
            member=found.name,
            topics=found.topics,
            session_expires=int((time.time() + found.left_s) * 1000),
            queues=tuple(
                [
                    MemberQueue(topic=topic, shard=shard, queue_id=queue_id, epoch=epoch)
                    for (topic, queue_id), epoch in found.epochs.items()
                ]
            ),
            leaving=tuple(
                [
                    LeavingQueue(topic=topic, shard=shard, queue_id=queue_id)
                    for topic, queue_id in found.leaving
                ]
            ),
        )


def _join(found: Sequence[Member]) -> Member:
    """Merge a member of several shards."""
    return found[0].model_copy(
        update={
            "session_expires": min(each.session_expires for each in found),
            "queues": tuple([queue for each in found for queue in each.queues]),
            "leaving": tuple([queue for each in found for queue in each.leaving]),
        }
    )


def _join_members(found: Sequence[Members]) -> Members:
    by_name: dict[str, list[Member]] = {}
    for member in [member for each in found for member in each.members]:
        by_name.setdefault(member.member, []).append(member)
    merged = [_join(each) for _, each in sorted(by_name.items())]
    return Members(group=found[0].group, members=tuple(merged))
