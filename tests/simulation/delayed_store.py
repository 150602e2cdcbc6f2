"""A store on a simulated machine, delayed messages for it, and what it delivered of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import SCHEDULE_TOPIC, StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.unit.storage.puts import put_message

ROOT = Path("/store")
CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=20,
    max_index_num=120,
    message_delay_level="1s 5s 10s",
)


class DelayedStore:
    """One process after another on one machine."""

    def __init__(
        self,
        seed: int = 1,
        *,
        config: StoreConfig = CONFIG,
        store_format: StoreFormat = StoreFormat.V4_9,
        machine: SimulatedMachine | None = None,
    ) -> None:
        """On a ``machine`` that has the store already, or on a new one."""
        self.machine = machine or SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.config = config
        self.format = store_format
        self.store = self.open()

    def open(self) -> MessageStore:
        boot_id = self.machine.clock.boot_id
        options = StoreOptions(format=self.format, boot_id=boot_id, pid=1)
        self.store = MessageStore.open(ROOT, self.config, self.machine.seams, options)
        return self.store

    def restart(self, disk: SimulatedDisk) -> MessageStore:
        """The next process, on what the last one left."""
        self.machine = self.machine.restart(disk)
        return self.open()

    def kill(self) -> MessageStore:
        """kill -9, and the next process."""
        return self.restart(self.machine.disk.kill())

    def put(self, number: int, level: int, *, topic: str = "T", **members: int) -> None:
        put_message(self.store, self.message(number, level, topic=topic, **members))

    def message(
        self, number: int, level: int, *, topic: str = "T", queue_id: int = 3, **members: int
    ) -> Message:
        table = {"UNIQ_KEY": f"u{number}", "TAGS": "a"} | ({"DELAY": str(level)} if level else {})
        encoded = properties.encode(
            table, trailing_separator=self.format.trailing_property_separator
        )
        host, born_ms = self.store.host, self.machine.clock.now_ms()
        return Message(topic, queue_id, b"%d" % number, encoded, host, host, born_ms, **members)

    def run(self, seconds: float) -> None:
        self.machine.scheduler.run_for(seconds)

    def delivered(self, topic: str = "T") -> list[int]:
        """The numbers of all copies in a topic's queue, in order."""
        return [int(found.body) for found in self.records(topic, 3)]

    def records(self, topic: str, queue_id: int) -> list[Record]:
        """The readable records of a queue, in their order."""
        queue = self.store.queues.get(topic, queue_id)
        found = []
        for index, entry in queue.entries(0, queue.max_index) if queue is not None else ():
            with suppress(StorageError):
                record = self.store.log.record_at(entry.physical_offset)
                if record.queue_offset == index:  # else it fills a hole
                    found.append(record)
        return found

    def pending(self, level: int) -> list[Record]:
        return self.records(SCHEDULE_TOPIC, level - 1)
