"""``python -m mqstore.writer``: the store-writer process."""

from __future__ import annotations

from mqstore.service.server import main
from mqstore.writer.service import WriterService

if __name__ == "__main__":
    main(WriterService, WriterService.name, lambda settings: settings.writer_port)
