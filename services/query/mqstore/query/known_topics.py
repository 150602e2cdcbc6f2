"""Topics that exist, also those without a message, as config/topics.json says."""

from __future__ import annotations

import threading

from mqstore.storage.admin import FollowedTable, TopicTable
from mqstore.storage.directory import StorePaths
from mqstore.storage.host import Seams


class KnownTopics:
    """How many read queues each topic has. Safe from any thread; may wait for the disk."""

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        self._file = FollowedTable(TopicTable, paths, seams)
        self._lock = threading.Lock()
        self._table: TopicTable | None = None
        self._queues: dict[str, int] = {}

    def read_queues(self, topic: str) -> int:
        """0 for a topic that was never created."""
        return self._all().get(topic, 0)

    def names(self) -> list[str]:
        return list(self._all())

    def _all(self) -> dict[str, int]:
        table = self._file.now().table
        with self._lock:
            if table is not self._table:
                self._queues = {each.name: each.read_queues for each in table.all()}
                self._table = table
            return self._queues
