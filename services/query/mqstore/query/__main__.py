"""``python -m mqstore.query``: the query process."""

from __future__ import annotations

from typing import NoReturn

from mqstore.query import interface
from mqstore.query.service import QueryService
from mqstore.service.server import run
from mqstore.service.settings import Settings


def build(settings: Settings) -> QueryService:
    """Build the query service with all its routes. Call it on the event loop that runs it."""
    service = QueryService(settings)
    interface.add(service.api, service)
    return service


def main() -> NoReturn:
    """Run the service with the settings of the environment; see ``server.run``."""
    run(build, QueryService.name, lambda settings: settings.query_port)


if __name__ == "__main__":
    main()
