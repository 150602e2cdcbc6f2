"""A store's life on a simulated machine: processes that come and go, and what they promised."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.metadata.clock_steps import CLOCK_STEP_MS
from mqstore.storage.seams import Seams
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import CONFIG, POOLED, WARMED, WIDE, Driver, Player
from tests.simulation.inode import Loss
from tests.simulation.invariants import Checker, check_expired
from tests.simulation.model import Model, QueueKey
from tests.simulation.scheduler import SimulatedScheduler

ROOT: Final = Path("/store")
ERRORS: Final = (errno.EIO, errno.ENOSPC)
CONFIGS: Final = (CONFIG, CONFIG, POOLED, CONFIG, POOLED, CONFIG, WIDE, WARMED)
"""By seed, so that no draw of a world depends on it."""
WAITLESS_SEEDS: Final = 11, 9
"""Period and remainder of the seeds whose puts do not wait for files; none has a name."""
LARGE_STEP: Final = 20_000
"""How much larger some steps of the clock are than others: up to a day."""
FAULT_WITHIN: Final = 60
"""Operations from now within which an armed fault strikes."""


class World:
    """A disk, the process that runs on it, if any, and the model of what must be there."""

    def __init__(self, seed: int, store_format: StoreFormat | None = None) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(SimulatedClock())
        self.disk.make_directories(ROOT)
        self.scheduler = SimulatedScheduler(self.rng, self.disk.clock)
        self.config = CONFIGS[seed % len(CONFIGS)]
        count, number = WAITLESS_SEEDS
        self.waits = seed % count != number
        self.format = store_format or self.rng.choice(list(StoreFormat))
        self.model = Model(self.format)
        self.player = Player(self.rng)
        self.driver: Driver | None = None
        self.floor = 0
        """While no process runs: where the log must reach when the next one opens it."""
        self.torn = False
        """While no process runs: whether what lies above the floor may be torn."""
        self.failed_before = False
        """Whether the store had failed when the put under way began."""
        self.on_crash_point: Callable[[], None] | None = None
        """Called wherever a crash would leave another state behind."""

    @property
    def clock(self) -> SimulatedClock:
        return self.disk.clock

    @property
    def seams(self) -> Seams:
        return Seams(self.disk, self.clock, self.scheduler, self.rng)

    @property
    def store(self) -> MessageStore:
        assert self.driver is not None
        return self.driver.store

    # processes that come

    def open(self) -> MessageStore:
        """Start a process, and hold what it recovered against the model."""
        self.disk.before_effect = self.crash_point
        self.scheduler = SimulatedScheduler(self.rng, self.clock)
        store = open_store(self.seams, self.format, self.config, waits=self.waits)
        checker = Checker(store, self.model, self.seams, random.Random(1), torn=self.torn)
        checker.check(self.floor)
        checker.settle()
        self.driver = Driver(store, self, self.seams)
        self.torn = False
        return store

    # processes that go

    def close(self) -> None:
        """A clean close. Raises what the store raises."""
        self.store.close()
        self._follow()
        self.model.promise(self.model.end)
        self.kill()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        self._end(self.disk.kill(), self.floor_after_kill())

    def lose_power(self, loss: Loss) -> None:
        floor = self.floor_after_power_cut()
        self._end(self.disk.power_cut(self.rng.getrandbits(32), loss), floor)
        self.torn = True

    def _end(self, disk: SimulatedDisk, floor: int) -> None:
        self._follow()
        assert not self.disk.holes_written, self.disk.holes_written
        self.disk, self.floor, self.driver = disk, floor, None
        self.model.refused()

    def floor_after_kill(self) -> int:
        """Least end of the log, were the process killed at this moment."""
        if self.driver is None:
            return self.floor
        self._follow()
        return self.driver.store.log.max_offset

    def floor_after_power_cut(self) -> int:
        if self.driver is None:
            return min(self.floor, self.model.durable)
        self._follow()
        return self.model.durable

    def _follow(self) -> None:
        if self.driver is not None:
            store = self.driver.store
            for new in self.model.follow(store.log):
                ahead_ms = new.store_ms - self.clock.now_ms()
                # A second at most where the clock's service runs; here it may be due for longer.
                unseen_ms = 1 + (self.clock.monotonic() - store.clock.checked_at) * 1000
                bound = CLOCK_STEP_MS + unseen_ms
                is_unseen = self.clock.stepped_at >= store.clock.checked_at
                assert is_unseen or ahead_ms <= bound, f"stored {ahead_ms} ms ahead of the clock"
            self.model.knows_clock &= store.clock.steps.is_saved
            if store.commits is not None and store.failure is not None:
                self.model.follow_failed_commit(store.log)

    # what happens meanwhile

    def crash_point(self) -> None:
        """The callback may look at the disk and the model: that is done here, always, so that
        a history is the same whether its states are examined or not."""
        self.disk.look()
        self._follow()
        if self.on_crash_point is not None:
            self.on_crash_point()

    def step(self) -> None:
        """One operation of the workload, or a moment of the machine's own."""
        rng = self.rng
        match rng.randrange(12):
            case 0:
                self.scheduler.run_some(3)
            case 1:
                self.scheduler.run_for(rng.random() * 5)
            case 2:
                step_ms = rng.randint(-5000, 5000)
                self.clock.step(step_ms * (1 if step_ms % 3 else LARGE_STEP))
            case _:
                assert self.driver is not None
                self.player.play(self.driver)
        self.crash_point()

    def arm_fault(self) -> None:
        """Some operation to come will fail."""
        number = len(self.disk.trace) + self.rng.randrange(FAULT_WITHIN)
        self.disk.fail_at(number, self.rng.choice(ERRORS), short=self.rng.random() < 0.3)

    def restart(self) -> None:
        """End the process in some way, and start another, maybe on a disk that fails at first."""
        match self.rng.randrange(7):
            case 0 | 1:
                self.kill()
            case 2:
                self._try(self.close)
            case number:
                self.lose_power(list(Loss)[number - 3])
        if self.rng.random() < 0.3:
            self.arm_fault()
        self._try(self.open)
        if self.driver is None:
            self.open()

    def _try(self, act: Callable[[], object]) -> None:
        """A process that a failing disk ends is killed; the disk does better next time."""
        try:
            act()
        except (OSError, StorageError):
            self.kill()
            self.disk.forgive()

    def live(self, steps: int) -> None:
        """Work, with restarts and faults now and then."""
        if self.driver is None:
            self.open()
        for _ in range(steps):
            chance = self.rng.random()
            if chance < 0.01:
                self.restart()
            elif chance < 0.02:
                self.arm_fault()
            self.attempt(self.step)

    def attempt(self, act: Callable[[], object]) -> None:
        """Do something that the disk may refuse; a store that failed makes way for the next."""
        try:
            act()
        except (OSError, StorageError):
            self._follow()
            self.model.refused()
        self.restart_if_failed()

    def restart_if_failed(self) -> None:
        if self.store.failure is not None:
            self.kill()
            self.disk.forgive()
            self.open()

    # Journal

    def expect(self, messages: Sequence[Message]) -> None:
        self.failed_before = self.store.failure is not None
        self.model.expect(messages)

    def stored(self, end: int) -> None:
        assert not self.failed_before, "a failed store acknowledged a put"
        self._follow()
        assert self.model.end == end
        assert not self.model.pending

    def refused(self) -> None:
        self._follow()
        self.model.refused()

    def promise(self, end: int) -> None:
        assert self.store.failure is None, "a failed store said that something is on disk"
        self.model.promise(end)

    def expire_up_to(self, offset: int) -> None:
        self.model.expire_up_to(offset)

    def expired(self, min_offset: int) -> None:
        self.model.expired(min_offset)
        check_expired(self.store)

    def topic(self, name: str, queues: int, *, done: bool) -> None:
        self.model.topic(name, queues, done=done)

    def consume(self, key: QueueKey, offset: int, *, done: bool) -> None:
        self._follow()
        self.model.consume(key, offset, done=done)


def open_store(
    seams: Seams, store_format: StoreFormat, config: StoreConfig = CONFIG, *, waits: bool = True
) -> MessageStore:
    assert isinstance(seams.clock, SimulatedClock)
    boot_id = seams.clock.boot_id
    options = StoreOptions(format=store_format, boot_id=boot_id, pid=1, waits_for_files=waits)
    return MessageStore.open(ROOT, config, seams, options)


def seams_on(disk: SimulatedDisk, seed: int) -> Seams:
    """Seams of a process on another disk."""
    rng = random.Random(seed)
    return Seams(disk, disk.clock, SimulatedScheduler(rng, disk.clock), rng)


def rocketmq_settings(config: StoreConfig) -> dict[str, int]:
    """The settings that a broker needs for a store's sizes."""
    return {
        "mappedFileSizeCommitLog": config.mapped_file_size_commit_log,
        "mappedFileSizeConsumeQueue": config.queue_file_size,
        "maxHashSlotNum": config.max_hash_slot_num,
        "maxIndexNum": config.max_index_num,
        "maxMessageSize": config.max_message_size,
    }
