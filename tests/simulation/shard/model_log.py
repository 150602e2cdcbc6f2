"""A replica's log as a list of records in memory, on a disk that loses what was not synced."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from mqstore.storage.metadata.log_history import NEVER_ELECTED, Epoch, LogHistory, begun
from tests.simulation.shard.ledger import Record

BATCH: Final = 3
"""Records of a frame at most."""
Records = tuple[Record, ...]


class ModelLog:
    """``ReplicaLog`` whose offsets count records."""

    def __init__(self, rng: random.Random) -> None:
        self.flushed = 0
        self._records: list[Record] = []
        self._epochs: tuple[Epoch, ...] = NEVER_ELECTED
        self._quarantine: list[Record] = []

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
    def quarantine(self) -> set[Record]:
        """See ``ReplicaLog``."""
        return set(self._quarantine)

    def open(self, leads_in: int | None, monotonic: Callable[[], float]) -> None:
        """See ``ReplicaLog``."""
        self.flushed = self.end
        if leads_in is not None:
            epoch = Epoch(leads_in, self.end, "leader")
            self._epochs = begun(self._epochs, epoch, 0)

    def put(self, record: Record) -> int:
        """See ``ReplicaLog``."""
        self._records.append(record)
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

    def adopt(self, leader: LogHistory) -> None:
        """See ``ReplicaLog``."""
        self._epochs = leader.epochs

    def cut(self, offset: int, epoch: int) -> None:
        """See ``ReplicaLog``."""
        self._quarantine += self._records[offset:]
        del self._records[offset:]
        self.flushed = min(self.flushed, offset)

    def kill(self) -> None:
        """See ``ReplicaLog``."""

    def lose_power(self, rng: random.Random) -> set[Record]:
        """See ``ReplicaLog``."""
        end = rng.randint(self.flushed, self.end)
        lost = set(self._records[end:])
        del self._records[end:]
        return lost
