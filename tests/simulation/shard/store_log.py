"""The log of a real store on a simulated disk."""

from __future__ import annotations

import contextlib
import random
import re
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Final

from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import TopicUnknown
from mqstore.storage.layout import MAGIC_BLANK, StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.paths import StorePaths
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.driver import CONFIG, KEYS, QUEUES, TOPICS
from tests.simulation.follower import entries_of, found_by_keys, log_bytes
from tests.simulation.inode import Loss
from tests.simulation.shard.ledger import Broken, LogPlace, Record
from tests.simulation.shard.replica_log import TOPIC, ReplicaLog
from tests.simulation.world import ROOT

LEADER: Final = "leader:10912"
STEP_CHANCE: Final = 0.2
"""How often the wall clock has been stepped when a process starts."""
STEP_MAX_MS: Final = 20_000
FORMAT: Final = StoreFormat.V5_X
_BODY: Final = re.compile(rb"<(\d+)\.(\d+)>")
_CHANGE: Final = re.compile(r"change_(\d+)_(-?\d+)_(\d+)_(\d+)")
_HEAD: Final = struct.Struct(">iI")


class StoreLog:
    """``ReplicaLog`` of a ``MessageStore``: all but its disk is real."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._machine = SimulatedMachine(rng.getrandbits(32))
        self._machine.disk.make_directories(ROOT)
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._store: MessageStore | None = None
        self._records: dict[int, Record] = {}
        self._known_end = 0
        self._last_tables: dict[int, LogPlace | None] = {}
        """The changes of tables when the last process ended."""
        self._flushed = 0
        """The end of the log that the last process had on disk."""

    @property
    def store(self) -> MessageStore:
        """The open store, at the present time."""
        assert self._store is not None
        self._machine.clock.advance_to(self._monotonic())
        return self._store

    @property
    def readable(self) -> int:
        """See ``ReplicaLog``."""
        return self.store.state.max_offset

    @property
    def changes(self) -> Collection[int]:
        """See ``ReplicaLog``."""
        return self._tables.keys()

    @property
    def refers_to(self) -> LogPlace | None:
        """See ``ReplicaLog``."""
        return max((each for each in self._tables.values() if each is not None), default=None)

    @property
    def _tables(self) -> dict[int, LogPlace | None]:
        """The number of each change, and the record that it refers to."""
        if self._store is not None:
            found = (_CHANGE.fullmatch(topic.name) for topic in self._store.topics())
            self._last_tables = dict(_change_of(each) for each in found if each is not None)
        return self._last_tables

    @property
    def records(self) -> Mapping[int, Record]:
        """See ``ReplicaLog``."""
        if self._store is not None and self._store.log.max_offset > self._known_end:
            self._read_records()
        return self._records

    @property
    def deleted_below(self) -> int:
        """See ``ReplicaLog``."""
        return DeletedTopics.load(self._machine.disk, StorePaths(ROOT).deleted_topics).below(TOPIC)

    @property
    def quarantine(self) -> set[Record]:
        """See ``ReplicaLog``."""
        disk = self._machine.disk
        kept = Quarantine(disk, disk.clock, StorePaths(ROOT).quarantine, ROOT)
        data = (disk.read(kept.data(entry.name)) for entry in kept.entries())
        return {_record_of(found) for each in data for found in _BODY.finditer(each)}

    def open(self, leads_in: int | None, monotonic: Callable[[], float]) -> None:
        """See ``ReplicaLog``."""
        if self._store is not None:
            self._store.close()
            self.kill()
        self._monotonic = monotonic
        machine = self._machine
        machine.clock.advance_to(monotonic())
        if self._rng.random() < STEP_CHANCE:
            machine.clock.step(self._rng.randint(-STEP_MAX_MS, STEP_MAX_MS))
        options = StoreOptions(
            format=FORMAT,
            boot_id=machine.clock.boot_id,
            pid=1,
            leader=LEADER if leads_in is None else None,
            epoch=leads_in,
            bounds_reads=True,
        )
        self._store = MessageStore.open(ROOT, CONFIG, machine.seams, options)
        self._records, self._known_end = {}, 0

    def put(self, record: Record) -> int:
        """See ``ReplicaLog``."""
        store, (epoch, number) = self.store, record
        self._machine.scheduler.run_some(3)
        body = f"<{epoch}.{number}>".encode().ljust(self._rng.randrange(20, 300), b".")
        encoded = properties.encode(
            {"UNIQ_KEY": f"u{number}", "KEYS": f"k{number % KEYS}"},
            trailing_separator=store.format.trailing_property_separator,
        )
        now_ms = self._machine.clock.now_ms()
        topic, queue = self._rng.choice(TOPICS), self._rng.randrange(QUEUES)
        placement = store.append(
            Message(topic, queue, body, encoded, store.host, store.host, now_ms)
        )
        return placement.physical_offset

    def change(self, number: int, refers_to: LogPlace | None) -> None:
        """See ``ReplicaLog``: make a topic, whose name says what it refers to."""
        offset, (epoch, of) = refers_to or (-1, (0, 0))
        self.store.put_topic(f"change_{number}_{offset}_{epoch}_{of}", TopicChange())

    def delete_topic(self) -> None:
        """See ``ReplicaLog``."""
        with contextlib.suppress(TopicUnknown):
            self.store.delete_topic(TOPIC)

    def sync(self) -> None:
        """See ``ReplicaLog``."""
        self._machine.scheduler.run_some(3)
        self.store.flush.flush_all()

    def restart(self) -> None:
        """See ``ReplicaLog``."""
        assert self.store.receiver is not None
        self.store.receiver.restart()

    def cut(self, offset: int, epoch: int) -> None:
        """See ``ReplicaLog``."""
        self.store.epochs.cut_at_opening(offset, LEADER, epoch)
        self.open(None, self._monotonic)

    def kill(self) -> None:
        """See ``ReplicaLog``."""
        self._end(self._machine.disk.kill())

    def lose_power(self, rng: random.Random) -> set[Record]:
        """See ``ReplicaLog``."""
        self._end(self._machine.disk.power_cut(rng.getrandbits(32), rng.choice(list(Loss))))
        return {record for at, record in self._records.items() if at >= self._flushed}

    def check_equal(self, other: ReplicaLog) -> None:
        """See ``ReplicaLog``."""
        assert isinstance(other, StoreLog)
        for store in (self.store, other.store):
            store.wait_for_index()
        start = self.store.log.min_offset
        for what, of in (
            ("log", log_bytes),
            ("queues", lambda store: entries_of(store, start)),
            ("index", lambda store: found_by_keys(store, start)),
        ):
            if of(self.store) != of(other.store):
                raise Broken(f"two replicas have the same records and another {what}")

    def _end(self, disk: SimulatedDisk) -> None:
        if self._store is not None:
            self._read_records()
            self._last_tables = self._tables
            self._flushed = self._store.log.flushed_offset
        self._machine = self._machine.restart(disk)
        self._store = None

    def _read_records(self) -> None:
        data, at = log_bytes(self.store), self._known_end
        while at < len(data):
            size, magic = _HEAD.unpack_from(data, at)
            if magic != MAGIC_BLANK:
                found = _BODY.search(data, at, at + size)
                assert found is not None
                self._records[at] = _record_of(found)
            at += size
        self._known_end = at


def _change_of(found: re.Match[str]) -> tuple[int, LogPlace | None]:
    number, offset, epoch, of = map(int, found.groups())
    return number, None if offset < 0 else (offset, (epoch, of))


def _record_of(found: re.Match[bytes]) -> Record:
    return int(found[1]), int(found[2])
