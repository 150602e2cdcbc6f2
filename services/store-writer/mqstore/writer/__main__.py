"""``python -m mqstore.writer``: the store-writer process."""

from __future__ import annotations

from typing import NoReturn

from mqstore.service import logs
from mqstore.service.server import run
from mqstore.service.settings import Settings
from mqstore.writer import interface
from mqstore.writer.service import WriterService

log = logs.get(__name__)


def build(settings: Settings) -> WriterService:
    """Build store-writer with all its routes. Call it on the event loop that runs it."""
    if unused := settings.unused_names():
        log.warning("settings of a broker without effect here", names=" ".join(unused))
    for lack in settings.lacks():
        log.warning("a broker's setting is not obeyed", setting=lack)
    service = WriterService(settings)
    interface.add(service.api, service)
    return service


def main() -> NoReturn:
    """Run the service with the settings of the environment; see ``server.run``."""
    run(build, WriterService.name, lambda settings: settings.writer_port)


if __name__ == "__main__":
    main()
