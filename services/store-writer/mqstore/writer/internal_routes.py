"""Routes for mqstore's other services: offsets and states of groups, and reports of damage."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from fastapi import Query, Response

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
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
from mqstore.writer.service import WriterService

OfGroup = Annotated[str | None, Query(description="Only this group.")]
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

    async def offsets(self) -> Response:
        """The committed offsets of all groups, including unsaved ones. Query derives lags from
        them."""
        body = await asyncio.to_thread(self._encode_offsets)
        return Response(body, media_type="application/json")

    def _encode_offsets(self) -> bytes:
        return msgspec.json.encode(_AllOffsets(offsets=self._service.store.offsets.by_queue()))

    async def consumer_states(self, group: OfGroup = None) -> Response:
        """Leased, acknowledged and delayed messages of shared groups, of one or of all. Query
        divides lags by them."""
        if group is not None:
            topic_names.check_group(group)
        body = await asyncio.to_thread(self._encode_states, group)
        return Response(body, media_type="application/json")

    def _encode_states(self, group: str | None) -> bytes:
        engine = self._service.consumers.engine
        pending, delayed = engine.pending(group), engine.count_returned()
        return msgspec.json.encode(
            _ConsumerStates(
                pending=tuple(
                    [
                        _PendingMessages(**place._asdict(), leased=each.leased, done=each.done)
                        for place, each in pending.items()
                    ]
                ),
                delayed=None if delayed is None else dict(delayed),
            )
        )

    async def damage(self, spec: DamageSpec) -> DamageReply:
        """Damage that look-ups of a reader met. The scrub checks the block of each offset, and
        treats damage in it like damage that a pass finds. Offsets outside the log are ignored."""
        return DamageReply(waiting=self._service.store.report_damage(spec.offsets))
