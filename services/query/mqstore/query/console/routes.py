"""The routes of the console: its files, and the operations that it forwards."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mqstore.query.console import files
from mqstore.query.console.relay import ConsoleRelay
from mqstore.service.app import Api
from mqstore.service.http import BODY_METHODS

_METHODS: Final = sorted(BODY_METHODS | {"GET"})


class ConsoleRoutes:
    """Serves ``/ui/``. The files need no token: they hold no data."""

    def __init__(self, relay: ConsoleRelay) -> None:
        self._relay = relay

    def add(self, api: Api) -> None:
        """Register the routes with ``api``. They are no part of the API's documentation."""
        add = api.app.add_route
        add("/ui", self.redirect, methods=["GET"], include_in_schema=False)
        add(
            "/ui/writer/{path:path}",
            self._relay.forward_to_writer,
            methods=_METHODS,
            include_in_schema=False,
        )
        add(
            "/ui/coordinator/{path:path}",
            self._relay.forward_to_coordinator,
            methods=_METHODS,
            include_in_schema=False,
        )
        add("/ui/metrics/{target}", self._relay.metrics, methods=["GET"], include_in_schema=False)
        add("/ui/{path:path}", self.file, methods=["GET"], include_in_schema=False)

    async def redirect(self, request: Request) -> Response:
        """Redirect to the directory, from which the pages' relative addresses begin."""
        return RedirectResponse("ui/", headers=dict(files.HEADERS))

    async def file(self, request: Request) -> Response:
        """Return a file of the console. Raises Problem (404)."""
        found = await asyncio.to_thread(files.load)
        return files.find(found, request.path_params["path"]).respond(request)
