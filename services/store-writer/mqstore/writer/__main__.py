"""``python -m mqstore.writer``: the store-writer process."""

from __future__ import annotations

from mqstore.service import logs
from mqstore.service.server import main
from mqstore.service.settings import Settings
from mqstore.writer import interface
from mqstore.writer.service import WriterService

log = logs.get(__name__)


def build(settings: Settings) -> WriterService:
    """Build store-writer with all its routes. Call it on the event loop that runs it."""
    if unused := settings.unused_names():
        log.warning("settings of a broker without effect here", names=" ".join(unused))
    service = WriterService(settings)
    interface.add(service.api, service)
    return service


if __name__ == "__main__":
    main(build, WriterService.name, lambda settings: settings.writer_port)
