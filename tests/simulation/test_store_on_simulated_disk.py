"""The whole MessageStore from a seed: on a disk that loses, tears and reorders, killed at random.

What was acknowledged must be there: ``sync`` after a power cut, ``async`` after a kill.
"""

from __future__ import annotations

import contextlib
import errno
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import PutRefused, StorageError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from mqstore.storage.own.state_page import Health
from mqstore.storage.seams import Seams
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import PowerCut, SimulatedDisk
from tests.simulation.scheduler import SimulatedScheduler

ROOT: Final = Path("/store")
CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=20,
    max_index_num=60,
    max_message_size=4096,
)
QUEUES: Final = 3


@dataclass
class World:
    """A disk, the processes that ran on it, and what they were told."""

    seed: int
    rng: random.Random = field(init=False)
    clock: SimulatedClock = field(init=False)
    disk: SimulatedDisk = field(init=False)
    scheduler: SimulatedScheduler = field(init=False)
    store: MessageStore | None = None
    next_number: int = 0
    durable: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """number -> (physical offset, queue id, queue offset), acknowledged with sync."""
    cached: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Acknowledged with async since the last power cut."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(self.clock)
        self.disk.make_directories(ROOT)
        self.scheduler = SimulatedScheduler(self.rng, self.clock)
        self.format = self.rng.choice(list(StoreFormat))

    def open(self) -> MessageStore:
        self.scheduler = SimulatedScheduler(self.rng, self.clock)
        seams = Seams(self.disk, self.clock, self.scheduler, self.rng)
        options = StoreOptions(format=self.format, boot_id=str(_boot_id(self.seed)), pid=1)
        self.store = MessageStore.open(ROOT, CONFIG, seams, options)
        return self.store

    def put(self) -> None:
        assert self.store is not None
        count = self.rng.choice([1, 1, 1, self.rng.randint(2, 8)])
        queue_id = self.rng.randrange(QUEUES)
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count
        durability = self.rng.choice(list(Durability))
        messages = [self.message(number, queue_id) for number in numbers]
        try:
            placements = self.store.put_batch(messages, durability)
        except PutRefused:
            return
        table = self.durable if durability is Durability.SYNC else self.cached
        for number, p in zip(numbers, placements, strict=True):
            table[number] = (p.physical_offset, p.queue_id, p.queue_offset)
        if durability is Durability.SYNC:
            # A sync covers everything before it in the log.
            self.durable |= self.cached
            self.cached = {}

    def message(self, number: int, queue_id: int) -> Message:
        assert self.store is not None
        encoded = properties.encode(
            {"KEYS": f"k{number}", "TAGS": "a"},
            trailing_separator=self.store.format.trailing_property_separator,
        )
        host = self.store.host
        return Message("T", queue_id, body_of(number), encoded, host, host, self.clock.now_ms())

    def work(self, steps: int) -> None:
        for _ in range(steps):
            match self.rng.randrange(8):
                case 0:
                    self.scheduler.run_some(3)
                case 1:
                    self.scheduler.run_for(self.rng.random() * 5)
                case 2:
                    self.clock.step(self.rng.randint(-5000, 5000))
                case _:
                    self.put()

    def kill(self) -> None:
        self.disk = self.disk.kill()
        self.store = None

    def lose_power(self) -> None:
        self.disk = self.disk.power_cut(self.rng.randrange(1 << 30))
        self.store = None
        self.cached = {}

    def check(self, store: MessageStore) -> None:
        """Acknowledged messages are whole, in their place, once; queues fit the log."""
        for number, (offset, queue_id, queue_offset) in (self.durable | self.cached).items():
            record = store.log.record_at(offset)
            assert record.body == body_of(number)
            assert (record.queue_id, record.queue_offset) == (queue_id, queue_offset)
            queue = store.queues.get("T", queue_id)
            assert queue is not None
            entry = queue.entry(queue_offset)
            assert entry is not None
            assert (entry.physical_offset, entry.size) == (offset, record.size)
        for queue in store.queues.all():
            for index, entry in queue.entries(0, queue.max_index):
                if not entry.is_hole:
                    assert entry.physical_offset + entry.size <= store.log.max_offset, index
        store.wait_for_index()
        for number in list(self.durable | self.cached)[-5:]:
            found = store.lookups.by_key("T", f"k{number}", limit=3)
            assert [record.body for record in found.records] == [body_of(number)]
        assert self.disk.holes_written == []


def body_of(number: int) -> bytes:
    return f"message {number} ".encode() * (number % 60)


def _boot_id(seed: int) -> str:
    return f"00000000-0000-4000-8000-{seed % (1 << 48):012x}"


def play(seed: int, rounds: int = 4) -> World:
    world = World(seed)
    for _ in range(rounds):
        store = world.open()
        world.check(store)
        world.work(world.rng.randint(0, 60))
        match world.rng.randrange(4):
            case 0:
                store.close()
                world.durable |= world.cached
                world.cached = {}
                world.kill()
            case 1:
                world.kill()
            case _:
                world.lose_power()
    world.check(world.open())
    return world


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_acknowledged_messages_survive_kills_and_power_cuts(seed: int) -> None:
    play(seed)


def test_the_same_seed_gives_the_same_trace() -> None:
    assert play(7, rounds=2).disk.trace == play(7, rounds=2).disk.trace


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_acknowledged_messages_survive_many_kills_and_power_cuts(seed: int) -> None:
    play(seed, rounds=8)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), where=st.floats(0, 1))
def test_a_power_cut_in_the_middle_of_anything_loses_nothing_acknowledged(
    seed: int, where: float
) -> None:
    """Learn how many operations a run has, then cut the power at one of them."""
    rehearsal = World(seed)
    rehearsal.open()
    rehearsal.work(40)
    world = World(seed)
    effects = rehearsal.disk.effects
    world.disk.cut_at(effects[int(where * (len(effects) - 1))])
    with contextlib.suppress(PowerCut):
        world.open()
        world.work(40)
    world.lose_power()
    world.check(world.open())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), where=st.floats(0, 1), again=st.booleans())
def test_a_power_cut_in_the_middle_of_recovery_loses_nothing_acknowledged(
    seed: int, where: float, again: bool
) -> None:
    world = World(seed)
    world.open()
    world.work(60)
    world.lose_power()
    before, state = world.disk.kill(), world.rng.getstate()
    world.open()
    effects = world.disk.effects
    world.disk = before
    world.rng.setstate(state)
    world.disk.cut_at(effects[int(where * (len(effects) - 1))])
    with contextlib.suppress(PowerCut):
        world.open()
    if again:
        world.disk = world.disk.kill()
    else:
        world.lose_power()
    world.check(world.open())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_recovering_twice_is_recovering_once(seed: int) -> None:
    world = World(seed)
    world.open()
    world.work(80)
    world.lose_power()
    first = world.open()
    end, queues = first.log.max_offset, _queue_ends(first)
    world.kill()
    second = world.open()
    assert (second.log.max_offset, _queue_ends(second)) == (end, queues)
    assert second.recovery.plan.cut_bytes == 0


def test_a_failed_sync_ends_acknowledgements_and_a_restart_keeps_what_was_promised() -> None:
    world = World(3)
    store = world.open()
    world.work(30)
    world.disk.fail_next("sync", errno.EIO)
    with pytest.raises(StorageError):
        store.put(world.message(10_000, 0), Durability.SYNC)
    assert store.state.health is Health.FAILED
    with pytest.raises(StorageError):
        store.put(world.message(10_001, 0), Durability.ASYNC)
    world.lose_power()
    world.check(world.open())


def _queue_ends(store: MessageStore) -> list[tuple[int, int]]:
    return [(queue.queue_id, queue.max_index) for queue in store.queues.all()]
