"""``python -m mqstore.query``: the query process."""

from __future__ import annotations

from mqstore.query.service import QueryService
from mqstore.service.server import main

if __name__ == "__main__":
    main(QueryService, QueryService.name, lambda settings: settings.query_port)
