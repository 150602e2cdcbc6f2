"""``python -m mqstore.coordinator``: the transaction coordinator's process."""

from __future__ import annotations

from typing import NoReturn

from mqstore.coordinator.service import CoordinatorService
from mqstore.service.server import run


def main() -> NoReturn:
    """Run the service with the settings of the environment; see ``server.run``."""
    run(CoordinatorService, CoordinatorService.name, lambda settings: settings.coordinator_port)


if __name__ == "__main__":
    main()
