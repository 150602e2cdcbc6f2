"""The log of a replica: in memory (``model_log``) or a real store's (``store_log``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sized
from typing import Final, Protocol

from mqstore.storage.metadata.log_history import LogHistory
from tests.simulation.driver import TOPICS
from tests.simulation.shard.ledger import Record

TOPIC: Final = TOPICS[0]
"""The topic that is deleted now and then."""


class ReplicaLog(Protocol):
    """The log of one volume, over all processes that use it."""

    @property
    def end(self) -> int:
        """The end of the log."""

    @property
    def flushed(self) -> int:
        """The end of the bytes on disk."""

    @property
    def history(self) -> LogHistory:
        """The epochs and bounds that replicas compare."""

    @property
    def records(self) -> Mapping[int, Record]:
        """All records by offset."""

    @property
    def deleted_below(self) -> int:
        """The offset below which the records of ``TOPIC`` are deleted; 0 without a deletion."""

    @property
    def quarantine(self) -> set[Record]:
        """The records that were cut off."""

    def open(self, leads_in: int | None, monotonic: Callable[[], float]) -> None:
        """Open the log in a process: to follow, or to lead in an epoch, which then begins.

        What is in it is synced. ``monotonic``: the machine's clock."""

    def put(self, record: Record) -> int:
        """Append a record; returns its offset."""

    def sync(self, end: int) -> None:
        """Have the log on disk, up to ``end`` at least if it reaches so far."""

    def read(self, offset: int) -> Sized:
        """Return some of the log from an offset on, for a follower; nothing at the end."""

    def append(self, offset: int, data: object) -> None:
        """Append what a leader has read at an offset."""

    def delete_topic(self) -> None:
        """Delete ``TOPIC``, durably, if it has records in a queue."""

    def deletions(self) -> object:
        """Return the deletions for ``adopt_deletions`` of a follower."""

    def adopt_deletions(self, deletions: object) -> bool:
        """Take over the deletions of a leader; return whether the log was opened again for it."""

    def adopt(self, leader: LogHistory) -> None:
        """Take over the epochs of a leader."""

    def cut(self, offset: int, epoch: int) -> None:
        """Cut what a leader of ``epoch`` lacks into quarantine."""

    def check_equal(self, other: ReplicaLog) -> None:
        """Raise Broken unless another log of the same kind has the same bytes, queues and
        look-ups."""

    def kill(self) -> None:
        """End the process that has it open."""

    def lose_power(self, rng: random.Random) -> set[Record]:
        """End the process, and lose some of what was not synced; returns what may be lost."""
