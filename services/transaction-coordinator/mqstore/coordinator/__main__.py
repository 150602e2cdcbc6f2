"""``python -m mqstore.coordinator``: the transaction coordinator's process."""

from __future__ import annotations

from mqstore.coordinator.service import CoordinatorService
from mqstore.service.server import main

if __name__ == "__main__":
    main(CoordinatorService, CoordinatorService.name, lambda settings: settings.coordinator_port)
