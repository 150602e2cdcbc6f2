"""Topics of ``config/topics.json`` and their queues, including topics without a message."""

from __future__ import annotations

import threading

from mqstore.storage.admin import FollowedTable, TopicTable
from mqstore.storage.directory import StorePaths
from mqstore.storage.host import Seams


class TopicQueues:
    """Number of read queues of each topic. Thread-safe; a method may wait for the disk."""

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        self._file = FollowedTable(TopicTable, paths, seams)
        self._lock = threading.Lock()
        self._table: TopicTable | None = None
        self._queues: dict[str, int] = {}

    def read_queues(self, topic: str) -> int:
        """Return the number of read queues of a topic, 0 for one that was never created."""
        return self._load().get(topic, 0)

    def names(self) -> list[str]:
        """Return the names of all configured topics."""
        return list(self._load())

    def _load(self) -> dict[str, int]:
        table = self._file.now().table
        with self._lock:
            if table is not self._table:
                self._queues = {each.name: each.read_queues for each in table.all()}
                self._table = table
            return self._queues
