"""Routes that resend and purge the dead letters of a group, on all shards or on one.

Each shard acts on its own dead letters. A request may be repeated: what is done stays done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query, Request

from mqstore.service import shard_cursor
from mqstore.service.app import Api, GroupName
from mqstore.service.endpoint import Endpoint
from mqstore.service.shard_cursor import ShardPosition, ShardPositions
from mqstore.service.shards import ShardReplies
from mqstore.storage import shared_groups, topic_names
from mqstore.storage.errors import TopicUnknown
from mqstore.storage.reads import DeadLetterQuery, unknown_group
from mqstore.storage.shared_groups import DeadLetters
from mqstore.wire import dead_letters as operations
from mqstore.wire.dead_letters import (
    DeadLetterFilter,
    LetterResult,
    LetterStatus,
    PurgedLetters,
    PurgedQueue,
    PurgeSpec,
    ResendSpec,
    ResentLetters,
)
from mqstore.wire.parameters import CursorParameters
from mqstore.wire.shards import Shards
from mqstore.writer.fan_out import decode_replies
from mqstore.writer.service import WriterService

Cursor = Annotated[CursorParameters, Query()]


Answer = TypeVar("Answer", ResentLetters, PurgedLetters)


@dataclass(frozen=True, slots=True)
class _Joined(Generic[Answer]):
    """The replies of shards, one at least, and the members of the reply that joins them."""

    replies: list[Answer]
    members: dict[str, Any]


class DeadLetterRoutes:
    """Serves administrators who resend or purge dead letters."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.RESEND, self.resend).add(api)
        Endpoint(operations.PURGE, self.purge).add(api)

    # resend -------------------------------------------------------------------------------

    async def resend(
        self, group: GroupName, spec: ResendSpec, request: Request, begin: Cursor
    ) -> ResentLetters:
        """Stores the messages of dead letters once more, the oldest first, and ends their listing:
        with `reconsumeTimes` 0, their own properties, ORIGIN_MESSAGE_ID, and MQSTORE_DEAD_LETTER,
        the id of the dead letter. Both are on disk at the reply. A repeated request resends nothing
        twice: a resend that a kill cut short is recognised by the unique key of its message; a
        message without one may be stored twice then. While `next` is set, repeat the request with
        `?cursor=`. A shard that does not reply is named in `shards`; repeat the request later."""
        topic_names.check_group(group)
        query = _query(group, spec.filter)

        async def here(cursor: str | None) -> ResentLetters:
            """Resend on this shard."""
            return await self._resend_here(group, spec, query, cursor)

        if not self._service.shards.fans_out(request.scope):
            return await here(begin.cursor)
        joined = await self._join_shards(request, ResentLetters, here, repr(query), begin.cursor)
        return joined.replies[0].model_copy(update=joined.members)

    async def _resend_here(
        self, group: str, spec: ResendSpec, query: DeadLetterQuery, cursor: str | None
    ) -> ResentLetters:
        self._require_group(group)
        if not spec.dry_run:
            self._service.require_puts()
        letters, to = self._letters, shared_groups.ResendTarget(spec.to)
        if spec.ids is not None:
            act = partial(letters.resend_chosen, group, spec.ids, to, dry_run=spec.dry_run)
        else:
            act = partial(
                letters.resend_found,
                *(query, to),
                limit=spec.max,
                cursor=cursor,
                dry_run=spec.dry_run,
            )
        done = await asyncio.to_thread(act)
        return ResentLetters(
            group=group,
            dry_run=spec.dry_run,
            results=tuple([_view(each) for each in done.letters]),
            next=done.cursor,
        )

    # purge --------------------------------------------------------------------------------

    async def purge(
        self, group: GroupName, spec: PurgeSpec, request: Request, begin: Cursor
    ) -> PurgedLetters:
        """Ends the listing of dead letters. Their messages stay in `%DLQ%GROUP` until retention
        deletes them, and a broker does not see a difference. On disk at the reply. May be repeated.
        While `next` is set, repeat the request with `?cursor=`. A shard that does not reply is
        named in `shards`."""
        topic_names.check_group(group)
        query = _query(group, spec.filter)
        shards = self._service.shards
        if spec.offset is not None:
            shards.require_shard(request.scope)

        async def here(cursor: str | None) -> PurgedLetters:
            """Purge on this shard."""
            return await self._purge_here(group, spec, query, cursor)

        if not shards.fans_out(request.scope):
            return await here(begin.cursor)
        joined = await self._join_shards(request, PurgedLetters, here, repr(query), begin.cursor)
        queues = [queue for each in joined.replies for queue in each.queues]
        purged = sum(each.purged for each in joined.replies)
        return joined.replies[0].model_copy(
            update={**joined.members, "queues": tuple(queues), "purged": purged}
        )

    async def _purge_here(
        self, group: str, spec: PurgeSpec, query: DeadLetterQuery, cursor: str | None
    ) -> PurgedLetters:
        self._require_group(group)
        letters, purged = self._letters, PurgedLetters(group=group, dry_run=spec.dry_run, purged=0)
        if spec.ids is None and spec.filter is None:
            bounds = {"before_ms": spec.before, "offset": spec.offset}
            purge = partial(letters.purge_before, group, **bounds, dry_run=spec.dry_run)
            queues = [
                PurgedQueue(shard=self._shard, queue_id=each.queue_id, purged=each.count)
                for each in await asyncio.to_thread(purge)
            ]
            count = sum(each.purged for each in queues)
            return purged.model_copy(update={"purged": count, "queues": tuple(queues)})
        if spec.ids is not None:
            act = partial(letters.purge_chosen, group, spec.ids, dry_run=spec.dry_run)
        else:
            act = partial(
                letters.purge_found, query, limit=spec.max, cursor=cursor, dry_run=spec.dry_run
            )
        done = await asyncio.to_thread(act)
        results = tuple([_view(each) for each in done.letters])
        count = sum(each.status is LetterStatus.DONE for each in results)
        return purged.model_copy(update={"purged": count, "results": results, "next": done.cursor})

    # both ---------------------------------------------------------------------------------

    async def _join_shards(
        self,
        request: Request,
        kind: type[Answer],
        here: Callable[[str | None], Awaitable[Answer]],
        scope: str,
        cursor: str | None,
    ) -> _Joined[Answer]:
        """Act on all shards but those that a cursor says are finished. ``scope`` binds the cursor
        to its request. Raises Problem if no shard replies with success."""
        shards = self._service.shards
        begun = shard_cursor.decode(cursor, scope)
        cursors = {shard: position.cursor for shard, position in begun.items()}

        async def own() -> bytes:
            """Act on this shard."""
            return (await here(cursors.get(shards.own))).model_dump_json(by_alias=True).encode()

        async with shards.fan_out(
            request,
            own,
            changed=lambda shard: {"cursor": cursors.get(shard)},
            skip={shard for shard, position in begun.items() if position.is_finished},
        ) as spread:
            found = decode_replies(spread, kind)
            spread.require_reply()
            positions = begun | {shard: _position(each) for shard, each in found.items()}
            return _Joined(
                list(found.values()),
                {
                    "results": _join(spread, [each.results for each in found.values()]),
                    "next": _next(positions, spread, scope),
                    "shards": Shards.model_validate(spread.view()),
                },
            )

    def _require_group(self, group: str) -> None:
        """Raise GroupUnknown for a group without dead letters and offsets."""
        store = self._service.store
        if not store.offsets.topics_of(group):
            try:
                store.topic(topic_names.DLQ_PREFIX + group)
            except TopicUnknown:
                raise unknown_group(group) from None

    @property
    def _letters(self) -> DeadLetters:
        return self._service.consumers.dead_letters


def _query(group: str, wanted: DeadLetterFilter | None) -> DeadLetterQuery:
    given = wanted or DeadLetterFilter()
    return DeadLetterQuery(
        *(topic_names.DLQ_PREFIX + group, given.from_ms, given.to_ms, False, ()),
        *(given.topic, given.key, given.tag, given.reason),
    )


def _view(found: shared_groups.LetterResult) -> LetterResult:
    return LetterResult(
        id=found.message_id,
        status=LetterStatus(found.status),
        topic=found.topic,
        copy_id=found.copy_id,
        detail=found.detail,
    )


def _position(found: ResentLetters | PurgedLetters) -> ShardPosition:
    return ShardPosition(found.next, is_finished=found.next is None)


def _next(positions: ShardPositions, spread: ShardReplies, scope: str) -> str | None:
    """The cursor over all shards while one that replied has more."""
    has_more = any(
        not position.is_finished and shard not in spread.missing
        for shard, position in positions.items()
    )
    return shard_cursor.encode(positions, scope) if has_more else None


def _join(
    spread: ShardReplies, parts: Sequence[Sequence[LetterResult]]
) -> tuple[LetterResult, ...]:
    """Join the results of shards: an id is unknown if no shard has it."""
    joined: dict[str, LetterResult] = {}
    for each in (result for part in parts for result in part):
        known = joined.get(each.id)
        if known is None or known.status is LetterStatus.UNKNOWN:
            joined[each.id] = each
    if spread.missing:
        joined = {letter_id: _unless_missing(each) for letter_id, each in joined.items()}
    return tuple(joined.values())


def _unless_missing(found: LetterResult) -> LetterResult:
    if found.status is not LetterStatus.UNKNOWN:
        return found
    return found.model_copy(update={"status": LetterStatus.UNREACHABLE})
