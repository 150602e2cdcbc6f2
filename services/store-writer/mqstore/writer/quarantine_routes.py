"""Routes of the quarantine: its entries, and the removal of an entry."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path as PathParameter

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire import stores as operations
from mqstore.wire.examples import stores as examples
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


class QuarantineRoutes:
    """Serves the quarantine: bytes that recoveries and repairs cut or replaced."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.QUARANTINE, self.quarantine).add(api)
        Endpoint(operations.REMOVE_QUARANTINED, self.remove_quarantined).add(api)

    async def quarantine(self) -> Quarantine:
        """Entries of the quarantine. The store removes those of index files once the index is
        complete."""
        found = await asyncio.to_thread(self._service.store.quarantine.entries)
        return Quarantine.model_validate(
            {"bytes": sum(entry.length for entry in found), "entries": found}
        )

    async def remove_quarantined(self, name: EntryName) -> None:
        """Removes an entry and its bytes for good: copy them first if they may be needed."""
        await asyncio.to_thread(self._service.store.quarantine.remove, name)
