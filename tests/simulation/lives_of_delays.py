"""Lives of a store that delivers later: puts, waits, crashes and failing disks from one seed.

``test_delayed_messages`` and ``test_timed_messages`` say what is put, and what must hold.
"""

from __future__ import annotations

import errno
import random
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Generic, TypeVar

from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.delayed_store import CONFIG, DelayedStore
from tests.simulation.inode import Loss

SMALL: Final = CONFIG.model_copy(
    update={"mapped_file_size_commit_log": 8 << 10, "flush_delay_offset_interval": 3_000}
)
POOLED: Final = SMALL.model_copy(update={"transient_store_pool_enable": True})

Store = TypeVar("Store", bound=DelayedStore)


class Life(ABC, Generic[Store]):
    """Puts and waits, with restarts; every crash must keep what was acknowledged."""

    world_type: type[Store]
    all_due_s: float
    """After which everything is delivered, retries included."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are looked at."""
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.format = self.rng.choice(list(StoreFormat))
        self.config = POOLED if seed % 3 == 0 else SMALL
        self.world = self.world_type(seed, config=self.config, store_format=self.format)
        self.next_number = 0
        self.acknowledged: set[int] = set()
        self.durable: set[int] = set()
        self.states = 0
        self.found: AssertionError | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self._begin()

    @abstractmethod
    def act(self, number: int) -> None:
        """Do what a number from 0 to 19 stands for; most are puts."""

    @abstractmethod
    def put_message(self, number: int, durability: Durability) -> None:
        """Put a message with this number that is due later."""

    @abstractmethod
    def originals(self, world: Store) -> set[int]:
        """The numbers of the messages that were put and are there."""

    @abstractmethod
    def check(self, world: Store, promised: set[int]) -> None:
        """Check a world in which everything is due; ``promised`` messages were not lost."""

    def live(self, steps: int) -> None:
        """Live some steps, then wait until everything is due, and check."""
        for _ in range(steps):
            try:
                self.act(self.rng.randrange(20))
            except (OSError, StorageError):
                if self.world.store.failure is None:
                    continue
            if self.world.store.failure is not None:
                self.restart(None)
        self.world.machine.disk.before_effect = None
        self.world.machine.disk.forgive()
        self.world.run(self.all_due_s)
        if self.found is not None:
            raise self.found
        if self.world.store.failure is None:
            self.check(self.world, self.acknowledged)

    # what ``act`` is made of

    def put(self) -> None:
        """Put a message, and note what its acknowledgement promises."""
        number, self.next_number = self.next_number, self.next_number + 1
        durability = self.rng.choice([Durability.SYNC, *[Durability.ASYNC] * 3])
        self.put_message(number, durability)
        self.acknowledged.add(number)
        if durability is Durability.SYNC:
            self.durable = set(self.acknowledged)

    def crash(self) -> None:
        """Crash, and go on with the next process."""
        self.restart(self.rng.choice(CRASHES))

    def close(self) -> None:
        """Close the store, and go on with the next process."""
        with suppress(StorageError):
            self.world.store.close()
        self.restart(None)

    def fail_disk(self) -> None:
        """Have one of the next operations of the disk fail."""
        disk = self.world.machine.disk
        number = len(disk.trace) + self.rng.randrange(60)
        disk.fail_at(number, self.rng.choice([errno.EIO, errno.ENOSPC]))

    def restart(self, loss: Loss | None) -> None:
        """Go on with the next process after a crash."""
        disk = crashed(self.world.machine.disk, loss, self.rng)
        try:
            self.world.restart(disk)
        except (OSError, StorageError):
            self.world.restart(disk.kill())
        self.acknowledged &= self.originals(self.world)
        self.durable = set(self.acknowledged)
        self._begin()

    def _begin(self) -> None:
        self.world.machine.disk.before_effect = self._crash_point

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        loss = self.chance.choice(CRASHES)
        disk = crashed(self.world.machine.disk, loss, self.chance)
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        after = self.world_type(config=self.config, store_format=self.format, machine=machine)
        after.run(self.all_due_s)
        self.states += 1
        try:
            self.check(after, self.acknowledged if loss is None else self.durable)
        except AssertionError as error:
            self.found = error
            raise
