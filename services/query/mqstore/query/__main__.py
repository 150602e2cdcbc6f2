"""``python -m mqstore.query``: the query process."""

from __future__ import annotations

from mqstore.query import interface
from mqstore.query.service import QueryService
from mqstore.service.server import main
from mqstore.service.settings import Settings


def build(settings: Settings) -> QueryService:
    """Build the query service with all its routes. Call it on the event loop that runs it."""
    service = QueryService(settings)
    interface.add(service.api, service)
    return service


if __name__ == "__main__":
    main(build, QueryService.name, lambda settings: settings.query_port)
