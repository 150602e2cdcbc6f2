"""Topics of ``config/topics.json`` and their queues, including topics without a message."""

from __future__ import annotations

from mqstore.storage.admin import FollowedTable, TopicTable
from mqstore.storage.directory import StorePaths
from mqstore.storage.host import Seams


class TopicQueues:
    """Number of read queues of each topic. Thread-safe; a method may wait for the disk."""

    def __init__(self, paths: StorePaths, seams: Seams) -> None:
        self._file = FollowedTable(TopicTable, paths, seams)

    def read_queues(self, topic: str) -> int:
        """Return the number of read queues of a topic, 0 for one that was never created."""
        found = self._file.now().table.get(topic)
        return 0 if found is None else found.read_queues

    def received_queues(self, topic: str) -> int | None:
        """Return the number of queues that consumers receive from; None for a topic that was never
        created, of which they receive all."""
        found = self._file.now().table.get(topic)
        return None if found is None else found.queues

    def require_readable(self, topic: str) -> None:
        """Raise TopicNotReadable for a topic that its perm does not let consumers read."""
        found = self._file.now().table.get(topic)
        if found is not None:
            found.require_readable()

    def names(self) -> list[str]:
        """Return the names of all configured topics, sorted."""
        return sorted(self._file.now().table.names())
