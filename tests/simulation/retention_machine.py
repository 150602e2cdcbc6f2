"""A store on a simulated machine whose clock and disk are a test's own."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from tests.simulation import SimulatedClock, SimulatedDisk, SimulatedMachine
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message

SEGMENT = 16 << 10
HOUR_S = 3600.0
NOON_MS = 1_800_100_800_000
"""2027-01-16 12:00 UTC."""
SETTINGS = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 20,
    "max_index_num": 60,
    "destroy_maped_file_interval_forcibly": 30_000,
    "redelete_hanged_file_interval": 20_000,
    "flush_interval_commit_log": 3_600_000,
    "flush_commit_log_thorough_interval": 3_600_000,
    "flush_interval_consume_queue": 3_600_000,
}
"""Small files, and services that a day without work does not keep busy."""


class Machine:
    def __init__(self, seed: int = 1, **changes: object) -> None:
        clock = SimulatedClock(NOON_MS)
        self.machine = SimulatedMachine(seed, clock=clock, disk=SimulatedDisk(clock))
        self.machine.disk.make_directories(Path("/store"))
        self.clock, self.disk = clock, self.machine.disk
        self.config = StoreConfig.model_validate(SETTINGS | changes)
        self.store = self.open()
        self.machine.scheduler.run_for(0.001)  # each service's first step

    def open(self) -> MessageStore:
        return MessageStore.open(Path("/store"), self.config, self.machine.seams, StoreOptions())

    def fill(self, segments: int) -> None:
        """Until the log has so many."""
        number = 0
        while len(self.store.log.files.files) < segments:
            put_message(
                self.store, message(self.store, number, queue_id=number % 2), Durability.ASYNC
            )
            number += 1
        self.machine.scheduler.run_for(0.001)  # the next segment is made ahead of need
        self.store.retention.plan()  # the simulated disk dates a change when it is looked at

    def settle(self) -> None:
        """Let the disk have everything, block checksums too: what is in use grows no more."""
        self.store.flush.flush_all()
        self.run(9)

    def run(self, seconds: float) -> int:
        """Let time pass; how many segments went."""
        before = len(self.store.log.files.files)
        self.machine.scheduler.run_for(seconds)
        return before - len(self.store.log.files.files)

    def age(self, hours: float) -> None:
        """Make files older while nothing runs: the clock is set, and that goes unnoticed."""
        step_ms = round(hours * HOUR_S * 1000)
        self.clock.step(step_ms)
        self.store.clock._base_ms += step_ms

    def use(self, percent: float) -> None:
        """Give the disk a size of which so much is in use."""
        used = self.disk.usage(Path("/store")).used
        self.disk.capacity = int(used * 100 / percent)
