"""store-writer's routes for mqstore's other services: committed offsets, and damage that readers of
the store met."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import msgspec
from fastapi import Response

from mqstore.service import problems
from mqstore.service.app import Api, documented
from mqstore.service.auth import Role
from mqstore.writer import control
from mqstore.writer.internal_models import (
    DAMAGE_EXAMPLE,
    OFFSETS_EXAMPLE,
    AllOffsets,
    DamageReply,
    DamageSpec,
)
from mqstore.writer.service import WriterService


class InternalRoutes:
    """Used by query."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        api.add_schemas(AllOffsets)
        path, summary = "/v1/internal/offsets", "Committed offsets of all groups"
        answered = documented("AllOffsets", OFFSETS_EXAMPLE)
        control.add(api, "GET", path, self.offsets, summary, 200, answered, tag="internal")
        summary, status = "Report damage of the log", HTTPStatus.ACCEPTED
        taken = control.answers(DAMAGE_EXAMPLE, *problems.WITH_BODY, status=status)
        control.add(
            api,
            "POST",
            "/v1/internal/damage",
            self.damage,
            summary,
            status,
            taken,
            tag="internal",
            role=Role.SYSTEM,
        )

    async def offsets(self) -> Response:
        """The committed offsets of all groups, saved or not. Query derives lags from them; it
        authenticates with the token of its client."""
        body = await asyncio.to_thread(self._encode_offsets)
        return Response(body, media_type="application/json")

    def _encode_offsets(self) -> bytes:
        return msgspec.json.encode(AllOffsets(self._service.store.offsets.by_queue()))

    async def damage(self, spec: DamageSpec) -> DamageReply:
        """From a reader of the store whose look-ups met damage. The scrub checks the block that
        holds each offset by itself, and treats damage there as it treats damage that a pass finds.
        Offsets outside of the log are ignored."""
        return DamageReply(waiting=self._service.store.report_damage(spec.offsets))
