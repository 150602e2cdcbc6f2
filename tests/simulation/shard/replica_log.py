"""The log of a replica: in memory (``memory_log``) or a real store's (``store_log``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from mqstore.storage.replication.stores import ReplicaStore
from tests.simulation.driver import TOPICS
from tests.simulation.shard.ledger import LogPlace, Record

TOPIC: Final = TOPICS[0]
"""The topic that is deleted now and then."""


class ReplicaLog(Protocol):
    """The log and tables of one volume, over all processes that use it."""

    @property
    def store(self) -> ReplicaStore:
        """The open store, for the sessions of replication."""

    @property
    def records(self) -> Mapping[int, Record]:
        """All records by offset."""

    @property
    def readable(self) -> int:
        """The end of what readers of confirmed messages see."""

    @property
    def changes(self) -> Collection[int]:
        """The numbers of the changes of tables."""

    @property
    def refers_to(self) -> LogPlace | None:
        """The last record that the tables refer to."""

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

    def change(self, number: int, refers_to: LogPlace | None) -> None:
        """Change a table, durably: it refers to a record of the log."""

    def delete_topic(self) -> None:
        """Delete ``TOPIC``, durably, if it has records in a queue."""

    def sync(self) -> None:
        """Have the log on disk."""

    def restart(self) -> None:
        """Forget the begin of an incomplete record, before a connection to a leader."""

    def cut(self, offset: int, epoch: int) -> None:
        """Cut what a leader of ``epoch`` lacks into quarantine, and open the log again."""

    def check_equal(self, other: ReplicaLog) -> None:
        """Raise Broken unless another log of the same kind has the same bytes, queues and
        look-ups."""

    def kill(self) -> None:
        """End the process that has it open."""

    def lose_power(self, rng: random.Random) -> set[Record]:
        """End the process, and lose some of what was not synced; returns what may be lost."""
