"""A replica's store in memory, on a disk that loses what was not synced: a list of records, their
queues, and the tables. What replicas compare, send and copy is the engine's own code.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from mqstore.storage.errors import QueuesIncomplete
from mqstore.storage.metadata.deleted_topics import DeletedTopic, Deletions, adopted
from mqstore.storage.metadata.log_history import NEVER_ELECTED, Epoch, LogHistory, begun
from mqstore.storage.replication.table_feed import TableBatch, TableFeed, TableName
from tests.simulation.driver import TOPICS
from tests.simulation.shard.ledger import Broken, LogPlace, Record
from tests.simulation.shard.replica_log import TOPIC, ReplicaLog

RECORD: Final = struct.Struct(">II")
"""Bytes of a record: its epoch and its number."""


class _Tables:
    """``TableCopies`` of a log in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def take(self, batch: TableBatch) -> None:
        """See ``TableCopies``."""
        self._log.take_tables({update.table: update.text for update in batch.updates})


class MemoryLog:
    """``ReplicaLog``, and its own ``ReplicaStore``. A topic has one queue; all records are in it at
    once, and stay in it over the end of a process."""

    def __init__(self, rng: random.Random) -> None:
        self.store: Any = self
        self.epochs = self.log = self.log_stream = self.receiver = self
        self.store_id = f"{rng.getrandbits(32):032x}"
        self.flushed_offset = 0
        self.is_compared = True
        self.start = self.last_segment = 0
        self._data = bytearray()
        self._bound = 0
        self._epochs: tuple[Epoch, ...] = NEVER_ELECTED
        self._quarantine: list[Record] = []
        self._deletions = Deletions()
        self._queues: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        """Offsets of records by topic."""
        self._changes: list[int] = []
        self.refers_to: LogPlace | None = None
        self.table_copies = _Tables(self)
        self.table_feed = self._new_feed()

    def _new_feed(self) -> TableFeed:
        return TableFeed(
            {
                TableName.DELETED_TOPICS: self._deletions_text,
                TableName.TOPICS: lambda: json.dumps(self._changes),
                TableName.DELAY_OFFSETS: lambda: json.dumps(self.last_record(self.end)),
            }
        )

    # see ReplicaStore: each part of it is the log itself

    @property
    def history(self) -> LogHistory:
        """See ``ComparedLog``."""
        return LogHistory("log", self._epochs, 0, self.end)

    def adopt(self, leader: LogHistory) -> None:
        """See ``ComparedLog``."""
        self._epochs = leader.epochs

    @property
    def end(self) -> int:
        """See ``ReadLog`` and ``ReceivedLog``."""
        return len(self._data)

    max_offset = end

    def take(self, offset: int, size: int) -> bytes | None:
        """See ``ReadLog``."""
        return self.read(offset, size) if self.end - offset < 10 * size else None

    def read(self, offset: int, size: int) -> bytes:
        """See ``ReadLog``."""
        return bytes(self._data[offset : offset + size])

    def has_room(self, size: int) -> bool:
        """See ``ReceivedLog``."""
        return (self.end + size) // RECORD.size % 16 != 0

    def append(self, offset: int, data: bytes) -> int:
        """See ``ReceivedLog``."""
        if offset != self.end or len(data) % RECORD.size:
            raise Broken(f"{len(data)} bytes come at {offset}, and the log ends at {self.end}")
        self._data += data
        self._dispatch(offset)
        return self.end

    def confirm(self, offset: int, in_sync: int) -> None:
        """See ``ReplicaStore``."""
        self._bound = max(self._bound, offset)

    def take_tables(self, texts: Mapping[TableName, str]) -> None:
        """Take tables of a leader, which are not ahead of the log; it is synced before."""
        self.sync()
        if (text := texts.get(TableName.DELETED_TOPICS)) is not None:
            self._adopt_deletions(Deletions.model_validate_json(text))
        if (text := texts.get(TableName.TOPICS)) is not None:
            self._changes = json.loads(text)
        if (text := texts.get(TableName.DELAY_OFFSETS)) is not None:
            self._adopt_place(json.loads(text))

    def _adopt_place(self, place: tuple[int, list[int]] | None) -> None:
        self.refers_to = None
        if place is not None:
            offset, (epoch, number) = place
            self.refers_to = offset, (epoch, number)
            if self.records.get(offset) != self.refers_to[1]:
                raise Broken(f"tables come before {self.refers_to}, which they refer to")

    # see ReplicaLog

    @property
    def records(self) -> Mapping[int, Record]:
        """See ``ReplicaLog``."""
        found = enumerate(RECORD.iter_unpack(self._data))
        return {number * RECORD.size: (epoch, of) for number, (epoch, of) in found}

    @property
    def readable(self) -> int:
        """See ``ReplicaLog``."""
        return min(self._bound, self.end)

    @property
    def changes(self) -> Collection[int]:
        """See ``ReplicaLog``."""
        return set(self._changes)

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
        self.flushed_offset, self._bound = self.end, 0
        self.table_feed = self._new_feed()
        self._end_queues()
        if self._deletions.queues_incomplete:
            self._deletions = self._deletions.model_copy(update={"queues_incomplete": False})
            self._dispatch(0)
        if leads_in is not None:
            epoch = Epoch(leads_in, self.end, "leader")
            self._epochs = begun(self._epochs, epoch, 0)

    def put(self, record: Record) -> int:
        """See ``ReplicaLog``."""
        self._data += RECORD.pack(*record)
        self._dispatch(self.end - RECORD.size)
        return self.end - RECORD.size

    def change(self, number: int, refers_to: LogPlace | None) -> None:
        """See ``ReplicaLog``."""
        self._changes.append(number)
        self.refers_to = refers_to
        self.table_feed.note(TableName.DELAY_OFFSETS)
        self.table_feed.note(TableName.TOPICS)

    def delete_topic(self) -> None:
        """See ``ReplicaLog``."""
        if self._queues[TOPIC]:
            self.sync()
            note = DeletedTopic(topic=TOPIC, offset=self.end, deleted_ms=0, queues={})
            self._deletions = self._deletions.model_copy(update={"topics": (note,)})
            self.table_feed.note(TableName.DELETED_TOPICS)
            self._queues[TOPIC].clear()

    def sync(self) -> None:
        """See ``ReplicaLog``."""
        self.flushed_offset = self.end

    def restart(self) -> None:
        """See ``ReplicaLog``: records come whole."""

    def cut(self, offset: int, epoch: int) -> None:
        """See ``ReplicaLog``."""
        self._quarantine += [record for at, record in self.records.items() if at >= offset]
        del self._data[offset:]
        self.open(None, lambda: 0.0)

    def check_equal(self, other: ReplicaLog) -> None:
        """See ``ReplicaLog``."""
        assert isinstance(other, MemoryLog)
        if self._queues != other._queues:
            raise Broken("two replicas have the same records and other queues")

    def kill(self) -> None:
        """See ``ReplicaLog``."""

    def lose_power(self, rng: random.Random) -> set[Record]:
        """See ``ReplicaLog``."""
        kept = rng.randint(self.flushed_offset // RECORD.size, self.end // RECORD.size)
        lost = {record for at, record in self.records.items() if at >= kept * RECORD.size}
        del self._data[kept * RECORD.size :]
        return lost

    def last_record(self, end: int) -> LogPlace | None:
        """Return the last record below an offset; None without one."""
        at = end - RECORD.size
        return (at, RECORD.unpack_from(self._data, at)) if at >= 0 else None

    def _deletions_text(self) -> str:
        return self._deletions.model_dump_json(by_alias=True, exclude={"queues_incomplete"})

    def _adopt_deletions(self, leader: Deletions) -> None:
        found = adopted(self._deletions, leader, 0, self.end)
        self._deletions = found.deletions
        for topic in found.dropped:
            self._queues[topic] -= set(range(self._below(topic)))
        if found.deletions.queues_incomplete:
            raise QueuesIncomplete("the leader has topics that were deleted here")

    def _below(self, topic: str) -> int:
        note = self._deletions.notes.get(topic)
        return 0 if note is None else note.offset

    def _dispatch(self, start: int) -> None:
        """Put the records from an offset on into the queues."""
        for offset in range(start, self.end, RECORD.size):
            number = RECORD.unpack_from(self._data, offset)[1]
            topic = TOPICS[number % len(TOPICS)]
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
