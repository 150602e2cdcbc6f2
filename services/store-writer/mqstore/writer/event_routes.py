"""store-writer's events as they come, and its long operations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Header, Query
from starlette.responses import StreamingResponse

from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import GUARDED, responses
from mqstore.wire.stores import Operation, Operations
from mqstore.writer import control
from mqstore.writer.service import WriterService

SECONDS_MAX: Final = 86_400
_EXAMPLE: Final = (
    'id: 5f0c2a1e-7\nevent: deleted\ndata: {"kind":"deleted","atMs":1,"expired":1}\n\n'
)
_EVENT: Final = {
    "type": "object",
    "description": "One event; `data` is JSON with `kind`, `atMs` and what belongs to the kind.",
    "required": ["id", "event", "data"],
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    HTTPStatus.OK: {
        "description": "Events, one after the other, until the client ends the connection.",
        "content": {"text/event-stream": {"schema": _EVENT, "example": _EXAMPLE}},
    }
}


class EventRoutes:
    """Watching a store without asking again and again."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        api.app.add_api_route(
            "/v1/events",
            self.events,
            summary="What happens in the store, as server-sent events",
            response_class=StreamingResponse,
            responses={**_STREAM, **responses(*GUARDED)},
            tags=["store"],
            dependencies=[api.requires(Role.CONSUME)],
        )
        summary = "What takes long: running, and ended last"
        control.add(api, "GET", "/v1/operations", self.operations, summary, 200, {}, tag="store")

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
