"""Routes of the stream of store-writer's events, and of its long operations."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire import stores as operations
from mqstore.wire.stores import LongOperation, Operations
from mqstore.writer.service import WriterService


class EventRoutes:
    """Serves events and long operations."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        self._api = api
        Endpoint(operations.EVENTS, self.events).add(api)
        Endpoint(operations.OPERATIONS, self.operations).add(api)

    async def events(
        self,
        request: Request,
        wanted: Annotated[operations.EventsParameters, Query()],
        last_event_id: Annotated[
            str | None,
            Header(
                max_length=100, description="Resume behind this event; browsers send the header."
            ),
        ] = None,
    ) -> StreamingResponse:
        """A stream of events; the latest 1000 are kept. Kinds: `opening`, `opened`, `index`,
        `index-trouble`, `scrub-findings`, `log-repaired`, `closing-damaged`, `index-rebuild`,
        `index-rebuilt`, `index-rebuild-ended`, `deleted`, `forced-deletion`, `space-not-freed`,
        `disk`, `puts`, `read-only`, `data-missing`, `loss-accepted`, `writes`, `damaged`,
        `offsets-lowered`, `clock-step`, `topic`, `expiry`, `backup`. `gap` comes first if events
        behind the Last-Event-ID are no longer kept. After 15 seconds without an event a comment is
        sent."""
        self._api.limits.hold_stream(request.scope)
        is_allowed = partial(
            self._api.auth.allows, request.scope["headers"], operations.EVENTS.role
        )
        return StreamingResponse(
            self._service.events.follow(last_event_id, wanted.seconds, is_allowed),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def operations(self) -> Operations:
        """Operations that run, and the last finished one of each name, newest first."""
        found = self._service.observer.operations()
        return Operations(operations=tuple([LongOperation.model_validate(each) for each in found]))
