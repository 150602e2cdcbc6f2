"""The next queue offset of every topic-queue: what the log numbers its records with.

Called from ``commit_log`` (under the put lock), from ``multi_dispatch``, and from ``recovery``,
which loads the table from the rebuilt queues before anything is appended. RocketMQ keeps two
tables (topicQueueTable and lmqTopicQueueTable); their keys never meet, so one holds both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mqstore.storage.layout import LMQ_PREFIX


class QueueOffsets:
    """Topic and queue id to next queue offset.

    ``next`` and ``as_dict`` may be called from any thread; whoever changes the table holds the
    put lock, or has the log to itself (recovery).
    """

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}
        self._lmq_queues = 0

    @property
    def known(self) -> dict[tuple[str, int], int]:
        """The table itself, for the kernel: it counts queues on that are in it, and adds none."""
        return self._next

    @property
    def lmq_queues(self) -> int:
        """How many queues of light message queues (``%LMQ%…``) there are."""
        return self._lmq_queues

    def next(self, topic: str, queue_id: int) -> int:
        """The offset that the next record of this queue gets; 0 for a queue never seen."""
        return self._next.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, count: int = 1) -> None:
        """Count records that were placed."""
        key = topic, queue_id
        known = self._next.get(key)
        if known is None:
            self.set(topic, queue_id, count)
        else:
            self._next[key] = known + count

    def place(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Count the record that got ``queue_offset``, which ``next`` gave; ``advance``, cheaper."""
        if queue_offset == 0:
            self.set(topic, queue_id, 1)
        else:
            self._next[topic, queue_id] = queue_offset + 1

    def set(self, topic: str, queue_id: int, next_offset: int) -> None:
        """Set what ``next`` answers, as recovery finds it in the rebuilt queue."""
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
        """As ``load``, of queues that the table does not know."""
        for topic, queue_id, next_offset in queues:
            if not self.knows(topic, queue_id):
                self.set(topic, queue_id, next_offset)

    def remove(self, topic: str, queue_id: int) -> None:
        """Forget a queue that was deleted; a later record starts at 0 again."""
        if self._next.pop((topic, queue_id), None) is not None and topic.startswith(LMQ_PREFIX):
            self._lmq_queues -= 1

    def knows(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self._next

    def as_dict(self) -> Mapping[tuple[str, int], int]:
        """A copy of the whole table."""
        return self._next.copy()
