"""A store of known messages on a simulated disk, whose files are changed behind its back."""

from __future__ import annotations

import random
from pathlib import Path

from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths, segment_name
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.driver import NewMessage, message_of
from tests.unit.storage.puts import put_message

ROOT = Path("/store")
PATHS = StorePaths(ROOT)


class DamagedStore:
    """A closed store of messages in two queues of topic T; what is changed is durable."""

    def __init__(
        self, seed: int, config: StoreConfig, store_format: StoreFormat, messages: int
    ) -> None:
        self.config = config
        self.chance = random.Random(seed)
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.touched: set[int] = set()
        """Physical offsets of messages that may be lost."""
        options = StoreOptions(format=store_format, boot_id="0" * 32, pid=1)
        with MessageStore.open(ROOT, config, self.machine.seams, options) as store:
            placed = []
            for number in range(messages):
                new = NewMessage(number, 300, number % 7, None)
                message = message_of(store, ("T", number % 2), new, self.machine.clock.now_ms())
                placed.append(put_message(store, message, Durability.SYNC).physical_offset)
            self.due: list[Record] = [store.lookups.by_physical_offset(each) for each in placed]

    def open(self, machine: SimulatedMachine) -> MessageStore:
        """Open the store of a machine, without services."""
        options = StoreOptions(boot_id="0" * 32, pid=1, services=False)
        return MessageStore.open(ROOT, self.config, machine.seams, options)

    def after(self, disk: SimulatedDisk) -> SimulatedMachine:
        """A machine with the disk that a crash left."""
        return SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)

    def write(self, path: Path, position: int, data: bytes) -> None:
        """Change bytes of a file."""
        disk = self.machine.disk
        mapped = disk.map(path, writable=True)
        mapped.view[position : position + len(data)] = data
        disk.sync_inode(str(path), disk._inode(str(path)))
        mapped.unmap()

    def write_log(self, offset: int, data: bytes) -> None:
        """Change bytes of the log; messages that they are part of may be lost."""
        size = self.config.mapped_file_size_commit_log
        self.write(PATHS.commit_log / segment_name(offset - offset % size), offset % size, data)
        self.touch(offset, offset + len(data))

    def touch(self, start: int, stop: int) -> None:
        """Messages in this range of the log may be lost."""
        self.touched |= {
            each.physical_offset
            for each in self.due
            if each.physical_offset < stop and start < each.physical_offset + each.size
        }

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.machine.disk.unlink(path)
        self.machine.disk.sync_directory(path.parent)
