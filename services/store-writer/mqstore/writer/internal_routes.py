"""Routes for mqstore's other services: committed offsets, and reports of damage."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import Response

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.structs import struct_of
from mqstore.wire import internal as operations
from mqstore.wire.internal import AllOffsets, DamageReply, DamageSpec
from mqstore.writer.service import WriterService

_AllOffsets = struct_of(AllOffsets)


class InternalRoutes:
    """Serves committed offsets and accepts damage reports; query uses both."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.ALL_OFFSETS, self.offsets).add(api)
        Endpoint(operations.REPORT_DAMAGE, self.damage).add(api)

    async def offsets(self) -> Response:
        """The committed offsets of all groups, including unsaved ones. Query derives lags from
        them; it authenticates with the token of its client."""
        body = await asyncio.to_thread(self._encode_offsets)
        return Response(body, media_type="application/json")

    def _encode_offsets(self) -> bytes:
        return msgspec.json.encode(_AllOffsets(offsets=self._service.store.offsets.by_queue()))

    async def damage(self, spec: DamageSpec) -> DamageReply:
        """Damage that look-ups of a reader met. The scrub checks the block of each offset, and
        treats damage in it like damage that a pass finds. Offsets outside the log are ignored."""
        return DamageReply(waiting=self._service.store.report_damage(spec.offsets))
