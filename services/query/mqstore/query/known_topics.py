"""Topics that exist, also those without a message: read from config/topics.json as it changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.tables.config_tables import TopicTable

SETTLED_MS: Final = 10
"""Two versions of one length may follow each other within a millisecond: until this long after a
change, the file is read each time."""


class KnownTopics:
    """How many read queues each topic has. Safe from any thread; may wait for the disk."""

    def __init__(self, root: Path, seams: Seams) -> None:
        self._paths = StorePaths(root)
        self._seams = seams
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._queues: dict[str, int] = {}

    def read_queues(self, topic: str) -> int:
        """0 for a topic that was never created."""
        with self._lock:
            self._refresh()
            return self._queues.get(topic, 0)

    def _refresh(self) -> None:
        stat = self._seams.files.stat(self._paths.config / TopicTable.file_name)
        now = None if stat is None else (stat.size, stat.modified_ms)
        if now is None or now == self._seen:
            return
        try:
            # Read alike in both formats; which one it is matters to writers only.
            table = TopicTable.load(self._paths, StoreFormat.V4_9, self._seams)
        except ConfigTableError:
            return  # what was known stays; the writer reports it
        self._queues = {each.name: each.read_queues for each in table.all()}
        is_settled = self._seams.clock.now_ms() - now[1] > SETTLED_MS
        self._seen = now if is_settled else None
