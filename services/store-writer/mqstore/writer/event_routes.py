"""store-writer's events as they come, and its long operations."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, Query
from starlette.responses import StreamingResponse

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire.operations import stores as operations
from mqstore.wire.stores import Operation, Operations
from mqstore.writer.service import WriterService

SECONDS_MAX: Final = 86_400


class EventRoutes:
    """Watching a store without polling."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.EVENTS, self.events).add(api)
        Endpoint(operations.OPERATIONS, self.operations).add(api)

    async def events(
        self,
        seconds: Annotated[
            float | None,
            Query(ge=0, le=SECONDS_MAX, description="End after so long; 0: what is there."),
        ] = None,
        last_event_id: Annotated[
            str | None,
            Header(max_length=100, description="Go on behind this one; browsers send it."),
        ] = None,
    ) -> StreamingResponse:
        """The latest 1000 are kept. `opening`, `opened`, `index`, `index-trouble`,
        `scrub-findings`, `log-repaired`, `closing-damaged`, `index-rebuild`, `index-rebuilt`,
        `index-rebuild-ended`, `deleted`, `forced-deletion`,
        `space-not-freed`, `disk`, `puts`, `read-only`,
        `data-missing`, `loss-accepted`, `writes`, `damaged`, `offsets-lowered`,
        `clock-step`, `topic`, `expiry`; and `gap` first, where some behind the Last-Event-ID are
        not known any more. A comment comes every 15 seconds when nothing happens."""
        return StreamingResponse(
            self._service.events.follow(last_event_id, seconds),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def operations(self) -> Operations:
        found = self._service.watching.operations()
        return Operations(operations=tuple([Operation.model_validate(each) for each in found]))
