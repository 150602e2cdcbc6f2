"""``python -m mqstore.coordinator``: the transaction coordinator's process."""

from __future__ import annotations

from mqstore.coordinator.hot_routes import HotRoutes
from mqstore.coordinator.producer_routes import ProducerRoutes
from mqstore.coordinator.routes import Routes
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.targets import Allowed
from mqstore.service.server import main
from mqstore.service.settings import Settings


def build(settings: Settings) -> CoordinatorService:
    """The service with its interface; on the event loop that will run it."""
    service = CoordinatorService(settings)
    HotRoutes(service).add(service.api)
    Routes(service).add(service.api)
    ProducerRoutes(service, Allowed.of(settings)).add(service.api)
    return service


if __name__ == "__main__":
    main(build, CoordinatorService.name, lambda settings: settings.coordinator_port)
