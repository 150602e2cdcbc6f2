"""Routes for mqstore's other services: offsets and states of groups, and reports of damage."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Annotated, Final

import msgspec
from fastapi import Query, Response

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.paging import Page, begin_of, next_cursor
from mqstore.service.structs import struct_of
from mqstore.storage import topic_names
from mqstore.wire import internal as operations
from mqstore.wire.internal import (
    AllOffsets,
    ConsumerStates,
    DamageReply,
    DamageSpec,
    PendingMessages,
)
from mqstore.wire.parameters import ListParameters
from mqstore.writer.service import WriterService

_OFFSETS: Final = "all offsets"
"""The list that a cursor belongs to."""
_AllOffsets = struct_of(AllOffsets)
_ConsumerStates = struct_of(ConsumerStates)
_PendingMessages = struct_of(PendingMessages)


class InternalRoutes:
    """Serves offsets and states of groups, and accepts damage reports; query uses them."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.ALL_OFFSETS, self.offsets).add(api)
        Endpoint(operations.CONSUMER_STATES, self.consumer_states).add(api)
        Endpoint(operations.REPORT_DAMAGE, self.damage, is_guarded=False).add(api)

    async def offsets(self, page: Page) -> Response:
        """The committed offsets of all groups, including unsaved ones, by `TOPIC@GROUP`, in pages.
        Query derives lags from them."""
        body = await asyncio.to_thread(self._encode_offsets, page)
        return Response(body, media_type="application/json")

    def _encode_offsets(self, page: ListParameters) -> bytes:
        after = begin_of(page, _OFFSETS)
        found, is_more = self._service.store.offsets.page_of_all(after, page.limit)
        following = next_cursor(list(found), _OFFSETS, is_more=is_more)
        return msgspec.json.encode(_AllOffsets(offsets=found, next=following))

    async def consumer_states(
        self, page: Annotated[operations.StatesParameters, Query()]
    ) -> Response:
        """Leased, acknowledged and delayed messages of shared groups, of one or of all, in pages of
        groups. Query divides lags by them."""
        if page.group is not None:
            topic_names.check_group(page.group)
        body = await asyncio.to_thread(self._encode_states, page.group, page)
        return Response(body, media_type="application/json")

    def _encode_states(self, group: str | None, page: ListParameters) -> bytes:
        engine, scope = self._service.consumers.engine, f"states of {group or ''}"
        after = begin_of(page, scope)
        pending, delayed = engine.pending(group), engine.count_returned()
        names = {*(place.group for place in pending), *(delayed or ())}
        names &= names if group is None else {group}
        first = nsmallest(page.limit + 1, (each for each in names if each > after))
        groups = frozenset(first[: page.limit])
        return msgspec.json.encode(
            _ConsumerStates(
                pending=tuple(
                    [
                        _PendingMessages(**place._asdict(), leased=each.leased, done=each.done)
                        for place, each in pending.items()
                        if place.group in groups
                    ]
                ),
                delayed=delayed
                if delayed is None
                else {each: count for each, count in delayed.items() if each in groups},
                next=next_cursor(first[: page.limit], scope, is_more=len(first) > page.limit),
            )
        )

    async def damage(self, spec: DamageSpec) -> DamageReply:
        """Damage that look-ups of a reader met. The scrub checks the block of each offset, and
        treats damage in it like damage that a pass finds. Offsets outside the log are ignored."""
        return DamageReply(waiting=self._service.store.report_damage(spec.offsets))
