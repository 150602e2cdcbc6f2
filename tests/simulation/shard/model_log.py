"""A replica's log as a list of records in memory, on a disk that loses what was not synced."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from mqstore.storage.metadata.deleted_topics import DeletedTopic, Deletions, adopted
from mqstore.storage.metadata.log_history import NEVER_ELECTED, Epoch, LogHistory, begun
from tests.simulation.driver import TOPICS
from tests.simulation.shard.ledger import Broken, Record
from tests.simulation.shard.replica_log import TOPIC, ReplicaLog

BATCH: Final = 3
"""Records of a frame at most."""
Records = tuple[Record, ...]


class ModelLog:
    """``ReplicaLog`` whose offsets count records. A topic has one queue; all records are in it at
    once, and stay in it over the end of a process."""

    def __init__(self, rng: random.Random) -> None:
        self.flushed = 0
        self._records: list[Record] = []
        self._epochs: tuple[Epoch, ...] = NEVER_ELECTED
        self._quarantine: list[Record] = []
        self._deletions = Deletions()
        self._queues: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        """Offsets of records by topic."""

    @property
    def end(self) -> int:
        """See ``ReplicaLog``."""
        return len(self._records)

    @property
    def history(self) -> LogHistory:
        """See ``ReplicaLog``."""
        return LogHistory("log", self._epochs, 0, self.end)

    @property
    def records(self) -> Mapping[int, Record]:
        """See ``ReplicaLog``."""
        return dict(enumerate(self._records))

    @property
    def deleted_below(self) -> int:
        """See ``ReplicaLog``."""
        return self._below(TOPIC)

    @property
    def quarantine(self) -> set[Record]:
        """See ``ReplicaLog``."""
        return set(self._quarantine)

    def open(self, leads_in: int | None, monotonic: Callable[[], float]) -> None:
        """See ``ReplicaLog``."""
        self.flushed = self.end
        self._end_queues()
        if self._deletions.queues_incomplete:
            self._deletions = self._deletions.model_copy(update={"queues_incomplete": False})
            self._dispatch(0)
        if leads_in is not None:
            epoch = Epoch(leads_in, self.end, "leader")
            self._epochs = begun(self._epochs, epoch, 0)

    def put(self, record: Record) -> int:
        """See ``ReplicaLog``."""
        self._records.append(record)
        self._dispatch(self.end - 1)
        return self.end - 1

    def sync(self, end: int) -> None:
        """See ``ReplicaLog``."""
        self.flushed = max(self.flushed, min(end, self.end))

    def read(self, offset: int) -> Records:
        """See ``ReplicaLog``."""
        return tuple(self._records[offset : offset + BATCH])

    def append(self, offset: int, data: object) -> None:
        """See ``ReplicaLog``."""
        assert offset == self.end
        assert isinstance(data, tuple)
        self._records += data
        self._dispatch(offset)

    def delete_topic(self) -> None:
        """See ``ReplicaLog``."""
        if self._queues[TOPIC]:
            self.sync(self.end)
            note = DeletedTopic(topic=TOPIC, offset=self.end, deleted_ms=0, queues={})
            self._deletions = self._deletions.model_copy(update={"topics": (note,)})
            self._queues[TOPIC].clear()

    def deletions(self) -> Deletions:
        """See ``ReplicaLog``."""
        return self._deletions

    def adopt_deletions(self, deletions: object) -> bool:
        """See ``ReplicaLog``."""
        assert isinstance(deletions, Deletions)
        found = adopted(self._deletions, deletions, 0, self.end)
        self._deletions = found.deletions
        for topic in found.dropped:
            self._queues[topic] -= set(range(self._below(topic)))
        if is_opened := found.deletions.queues_incomplete:
            self.open(None, lambda: 0.0)
        return is_opened

    def check_equal(self, other: ReplicaLog) -> None:
        """See ``ReplicaLog``."""
        assert isinstance(other, ModelLog)
        if self._queues != other._queues:
            raise Broken("two replicas have the same records and other queues")

    def adopt(self, leader: LogHistory) -> None:
        """See ``ReplicaLog``."""
        self._epochs = leader.epochs

    def cut(self, offset: int, epoch: int) -> None:
        """See ``ReplicaLog``."""
        self._quarantine += self._records[offset:]
        del self._records[offset:]
        self.flushed = min(self.flushed, offset)
        self._end_queues()

    def kill(self) -> None:
        """See ``ReplicaLog``."""

    def lose_power(self, rng: random.Random) -> set[Record]:
        """See ``ReplicaLog``."""
        end = rng.randint(self.flushed, self.end)
        lost = set(self._records[end:])
        del self._records[end:]
        return lost

    def _below(self, topic: str) -> int:
        note = self._deletions.notes.get(topic)
        return 0 if note is None else note.offset

    def _dispatch(self, start: int) -> None:
        """Put the records from an offset on into the queues."""
        for offset in range(start, self.end):
            topic = TOPICS[self._records[offset][1] % len(TOPICS)]
            if offset >= self._below(topic):
                self._queues[topic].add(offset)

    def _end_queues(self) -> None:
        """Let queues and deletions end where the log does, as an opening does."""
        for queue in self._queues.values():
            queue.intersection_update(range(self.end))
        topics = tuple(
            note.model_copy(update={"offset": min(note.offset, self.end)})
            for note in self._deletions.topics
        )
        self._deletions = self._deletions.model_copy(update={"topics": topics})
