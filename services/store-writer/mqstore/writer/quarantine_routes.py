"""store-writer's routes of the quarantine: what it holds, and the removal of an entry."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Path as PathParameter

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire.examples import stores as examples
from mqstore.wire.operations import stores as operations
from mqstore.wire.stores import Quarantine
from mqstore.writer.service import WriterService

EntryName = Annotated[
    str,
    PathParameter(
        max_length=255,
        description="`name` of an entry.",
        openapi_examples={"an entry": {"value": examples.QUARANTINE["entries"][0]["name"]}},
    ),
]
_PATH: Final = "/v1/store/quarantine"


class QuarantineRoutes:
    """Bytes that recoveries and repairs cut or replaced lie in `mqstore/quarantine/`."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.QUARANTINE, self.quarantine).add(api)
        Endpoint(operations.REMOVE_QUARANTINED, self.remove_quarantined).add(api)

    async def quarantine(self) -> Quarantine:
        """Entries of index files are removed by themselves once the index is complete."""
        found = await asyncio.to_thread(self._service.store.quarantine.entries)
        return Quarantine.model_validate(
            {"bytes": sum(entry.length for entry in found), "entries": found}
        )

    async def remove_quarantined(self, name: EntryName) -> None:
        """Its bytes are gone for good: copy them first where they may be needed."""
        await asyncio.to_thread(self._service.store.quarantine.remove, name)
