"""The next queue offset of every topic-queue, by which the log numbers its records.

Called from ``commit_log`` (under the put lock), from ``multi_dispatch``, and from ``recovery``,
which loads the table from the rebuilt queues before the first append. RocketMQ keeps two tables
(topicQueueTable and lmqTopicQueueTable); their keys are disjoint, so that one table holds both
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mqstore.storage.layout import LMQ_PREFIX


class QueueOffsets:
    """Maps topic and queue id to the next queue offset.

    Any thread may call ``next`` and ``as_dict``; a thread that changes the table holds the put
    lock, or has the log to itself (recovery).
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}
        self._lmq_queues = 0

    @property
    def table(self) -> dict[tuple[str, int], int]:
        """The table itself, for the kernel, which advances its queues and adds none."""
        return self._next

    @property
    def lmq_queues(self) -> int:
        """Number of light message queues (``%LMQ%…``)."""
        return self._lmq_queues

    def next(self, topic: str, queue_id: int) -> int:
        """The offset of the next record of this queue; 0 for an unknown queue."""
        return self._next.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, count: int = 1) -> None:
        """Count placed records."""
        key = topic, queue_id
        known = self._next.get(key)
        if known is None:
            self.set(topic, queue_id, count)
        else:
            self._next[key] = known + count

    def set(self, topic: str, queue_id: int, next_offset: int) -> None:
        """Set the next offset, as recovery finds it in the rebuilt queue."""
        if next_offset < 0:
            raise ValueError(f"next offset of {topic} queue {queue_id} is negative: {next_offset}")
        key = topic, queue_id
        if key not in self._next and topic.startswith(LMQ_PREFIX):
            self._lmq_queues += 1
        self._next[key] = next_offset

    def load(self, queues: Iterable[tuple[str, int, int]]) -> None:
        """Replace the table by (topic, queue id, next offset) of each rebuilt queue."""
        self._next.clear()
        self._lmq_queues = 0
        for topic, queue_id, next_offset in queues:
            self.set(topic, queue_id, next_offset)

    def load_missing(self, queues: Iterable[tuple[str, int, int]]) -> None:
        """Add queues that are not in the table, in the form of ``load``."""
        for topic, queue_id, next_offset in queues:
            if not self.knows(topic, queue_id):
                self.set(topic, queue_id, next_offset)

    def remove(self, topic: str, queue_id: int) -> None:
        """Remove a deleted queue; a later record starts at 0 again."""
        if self._next.pop((topic, queue_id), None) is not None and topic.startswith(LMQ_PREFIX):
            self._lmq_queues -= 1

    def knows(self, topic: str, queue_id: int) -> bool:
        """Whether the queue is in the table."""
        return (topic, queue_id) in self._next

    def as_dict(self) -> Mapping[tuple[str, int], int]:
        """A copy of the whole table."""
        return self._next.copy()
