"""Routes that resend and purge the dead letters of a group, on all shards or on one.

Each shard acts on its own dead letters. A request may be repeated: what is done stays done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import Query, Request

from mqstore.service import shard_cursor
from mqstore.service.app import Api, GroupName
from mqstore.service.endpoint import Endpoint
from mqstore.service.shard_cursor import ShardPosition, ShardPositions
from mqstore.service.shards import ShardReplies
from mqstore.storage import shared_groups, topic_names
from mqstore.storage.reads import DeadLetterQuery
from mqstore.storage.shared_groups import DeadLetters
from mqstore.wire import dead_letters as operations
from mqstore.wire.base import Reply
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
from mqstore.wire.shards import Shards
from mqstore.writer.fan_out import decode_replies
from mqstore.writer.service import WriterService

Cursor = Annotated[
    str | None,
    Query(max_length=shard_cursor.LENGTH_MAX, description="`next` of the previous reply."),
]


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
        self, group: GroupName, spec: ResendSpec, request: Request, cursor: Cursor = None
    ) -> ResentLetters:
        """Stores the messages of dead letters once more, the oldest first, and ends their listing:
        with `reconsumeTimes` 0, their own properties, ORIGIN_MESSAGE_ID, and MQSTORE_DEAD_LETTER,
        the id of the dead letter. Both are on disk at the reply. A repeated request resends nothing
        twice: a resend that a kill cut short is recognised by the unique key of its message; a
        message without one may be stored twice then. While `next` is set, repeat the request with
        `?cursor=`. A shard that does not reply is named in `shards`; repeat the request later."""
        topic_names.check_group(group)
        query = _query(group, spec.filter)
        shards, scope = self._service.shards, repr(query)
        if not shards.fans_out(request.scope):
            return await self._resend_here(group, spec, query, cursor)
        begun = shard_cursor.decode(cursor, scope)
        cursors = {shard: position.cursor for shard, position in begun.items()}

        async def here() -> bytes:
            """Resend on this shard."""
            return _encode(await self._resend_here(group, spec, query, cursors.get(shards.own)))

        async with shards.fan_out(
            request,
            here,
            changed=lambda shard: {"cursor": cursors.get(shard)},
            skip={shard for shard, position in begun.items() if position.is_finished},
        ) as spread:
            found = decode_replies(spread, ResentLetters)
            spread.require_reply()
            positions = begun | {shard: _position(each) for shard, each in found.items()}
            return ResentLetters(
                group=group,
                dry_run=spec.dry_run,
                results=_join(spread, [each.results for each in found.values()]),
                next=_next(positions, spread, scope),
                shards=Shards.model_validate(spread.view()),
            )

    async def _resend_here(
        self, group: str, spec: ResendSpec, query: DeadLetterQuery, cursor: str | None
    ) -> ResentLetters:
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

    async def purge(self, group: GroupName, spec: PurgeSpec, request: Request) -> PurgedLetters:
        """Ends the listing of dead letters. Their messages stay in `%DLQ%GROUP` until retention
        deletes them, and a broker does not see a difference. On disk at the reply. May be repeated.
        A shard that does not reply is named in `shards`."""
        topic_names.check_group(group)
        shards = self._service.shards
        if spec.offset is not None:
            shards.require_shard(request.scope)
        if not shards.fans_out(request.scope):
            return await self._purge_here(group, spec)

        async def here() -> bytes:
            """Purge on this shard."""
            return _encode(await self._purge_here(group, spec))

        async with shards.fan_out(request, here) as spread:
            found = decode_replies(spread, PurgedLetters)
            spread.require_reply()
            return PurgedLetters(
                group=group,
                dry_run=spec.dry_run,
                purged=sum(each.purged for each in found.values()),
                queues=tuple([queue for each in found.values() for queue in each.queues]),
                results=_join(spread, [each.results for each in found.values()]),
                shards=Shards.model_validate(spread.view()),
            )

    async def _purge_here(self, group: str, spec: PurgeSpec) -> PurgedLetters:
        queues: tuple[PurgedQueue, ...] = ()
        results: tuple[LetterResult, ...] = ()
        if spec.ids is not None:
            purge = partial(self._letters.purge_chosen, group, spec.ids, dry_run=spec.dry_run)
            results = tuple([_view(each) for each in await asyncio.to_thread(purge)])
            count = sum(each.status is LetterStatus.DONE for each in results)
        else:
            bounds = {"before_ms": spec.before, "offset": spec.offset}
            purge_all = partial(self._letters.purge_before, group, **bounds, dry_run=spec.dry_run)
            done = await asyncio.to_thread(purge_all)
            queues = tuple(
                [
                    PurgedQueue(shard=self._shard, queue_id=each.queue_id, purged=each.count)
                    for each in done
                ]
            )
            count = sum(each.purged for each in queues)
        return PurgedLetters(
            group=group, dry_run=spec.dry_run, purged=count, queues=queues, results=results
        )

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


def _encode(reply: Reply) -> bytes:
    return reply.model_dump_json(by_alias=True).encode()


def _position(found: ResentLetters) -> ShardPosition:
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
