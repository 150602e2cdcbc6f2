"""Leaders' logs, and followers that receive them in pieces on a simulated machine."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from functools import cache

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.metadata.log_history import Epoch, LogHistory
from mqstore.storage.replication import LogReceiver
from mqstore.storage.seams import Seams
from tests.simulation import SimulatedClock, SimulatedDisk, SimulatedMachine
from tests.simulation.disk import PowerCut
from tests.simulation.driver import KEYS, TOPICS
from tests.simulation.inode import Loss
from tests.simulation.world import ROOT, World

LEADER = "leader:10912"
BEFORE = (Epoch(0, 0), Epoch(1, 0))
"""The epochs of a leader that was cut off."""
Entries = dict[tuple[str, int], list[tuple[int, int, int, int]]]
"""Queue offset, physical offset, size and tags code of each entry, by topic and queue id."""
Found = dict[tuple[str, str], list[int]]
"""Physical offsets of the records found, by topic and key."""


@dataclass(frozen=True)
class LeaderLog:
    """Content of a leader's store: its log's bytes from ``start`` on, its queues and look-ups."""

    start: int
    data: bytes
    config: StoreConfig
    format: StoreFormat
    entries: Entries
    found: Found

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def piece(self, offset: int, length: int) -> bytes:
        """Bytes from a physical offset on, within its segment as RocketMQ sends them."""
        size = self.config.mapped_file_size_commit_log
        stop = min(offset + length, (offset // size + 1) * size, self.end)
        return self.data[offset - self.start : stop - self.start]


@cache
def leader_log(seed: int, steps: int) -> LeaderLog:
    """The store that a leader has after ``steps`` operations."""
    world = World(seed)
    world.open()
    for _ in range(steps):
        world.step()
    return _log_of(world)


def _log_of(world: World) -> LeaderLog:
    store = world.store
    store.wait_for_index()
    start = store.log.min_offset
    found = LeaderLog(
        start,
        log_bytes(store),
        store.config,
        store.format,
        entries_of(store, start),
        found_by_keys(store, start),
    )
    world.close()
    return found


@dataclass(frozen=True)
class Fork:
    """Two logs that are one up to ``offset``: that of a leader that was cut off, and its
    successor's."""

    offset: int
    cut_off: LeaderLog
    successor: LeaderLog

    @property
    def history(self) -> LogHistory:
        """The successor's; the leader before was of epoch 1."""
        epochs = (*BEFORE, Epoch(2, self.offset))
        return LogHistory("log", epochs, self.successor.start, self.successor.end)


@cache
def fork(seed: int, common: int, steps: int) -> Fork:
    """Two logs that went on by themselves after ``common`` operations."""
    ends, logs = set(), []
    for branch in range(2):
        world = World(seed)
        store = world.open()
        for _ in range(common):
            world.step()
        ends.add(store.log.max_offset)
        world.rng.seed(f"{seed}-{branch}")
        for _ in range(steps):
            world.step()
        logs.append(_log_of(world))
    (offset,) = ends
    return Fork(offset, *logs)


def log_bytes(store: MessageStore) -> bytes:
    return b"".join(bytes(file.view[: file.wrote_position]) for file in store.log.files.files)


def entries_of(store: MessageStore, start: int) -> Entries:
    """The entries of records at or above a physical offset."""
    found = {}
    for queue in store.queues.all():
        entries = [
            (index, entry.physical_offset, entry.size, entry.tags_code)
            for index, entry in queue.entries(queue.min_index, queue.max_index)
            if not entry.is_hole and entry.physical_offset >= start
        ]
        if entries:
            found[queue.topic, queue.queue_id] = entries
    return found


def found_by_keys(store: MessageStore, start: int) -> Found:
    found = {}
    for topic in TOPICS:
        for key in range(KEYS):
            answer = store.lookups.by_key(topic, f"k{key}", limit=1000)
            assert answer.complete
            offsets = [each.physical_offset for each in answer.records]
            found[topic, f"k{key}"] = [each for each in offsets if each >= start]
    return found


class FollowerWorld:
    """A follower on a simulated machine, which dies in any way and goes on."""

    def __init__(self, leader: LeaderLog, seed: int) -> None:
        self.leader = leader
        self.rng = random.Random(seed)
        disk = SimulatedDisk(SimulatedClock())
        disk.make_directories(ROOT)
        self.machine = SimulatedMachine(seed, clock=disk.clock, disk=disk)
        self.acknowledged = 0
        """Greatest offset that was acknowledged as being on disk."""
        self.store = self.open()

    @property
    def receiver(self) -> LogReceiver:
        assert self.store.receiver is not None
        return self.store.receiver

    def open(self) -> MessageStore:
        """Start a process, and check that what it has are the leader's bytes."""
        self.store = open_follower(self.machine.seams, self.leader)
        end = self.store.log.max_offset
        assert end >= self.acknowledged
        if end:
            assert log_bytes(self.store) == self.leader.data[: end - self.leader.start]
        return self.store

    def receive(self, length: int) -> None:
        """Receive the next piece, of at most ``length`` bytes."""
        offset = self.receiver.offset or self.leader.start
        data = self.leader.piece(offset, length)
        if data:
            self.receiver.append(offset, data)

    def receive_all(self) -> None:
        self.receiver.restart()
        while self.receiver.offset < self.leader.end:
            self.receive(8 << 10)

    def acknowledge(self) -> None:
        """Sync, as a follower does before it reports its offset."""
        end = self.receiver.end
        self.store.flush.flush_all()
        self.acknowledged = max(self.acknowledged, end)

    def open_over_crashes(self, crashes: list[tuple[int, Loss | None]]) -> MessageStore:
        """Open, while the process ends at the given numbers of operations: killed, or without
        power."""
        for number, loss in crashes:
            disk = self.machine.disk
            disk.cut_at(len(disk.trace) + number)
            with contextlib.suppress(PowerCut):
                open_follower(self.machine.seams, self.leader)
            disk.forgive()
            if loss is None:
                self.kill()
            else:
                self.lose_power(loss)
        return self.open()

    def kill(self) -> None:
        self.machine = self.machine.restart(self.machine.disk.kill())

    def lose_power(self, loss: Loss) -> None:
        disk = self.machine.disk.power_cut(self.rng.getrandbits(32), loss)
        self.machine = self.machine.restart(disk)

    def check_equal(self) -> None:
        """The follower has what the leader has: log, queues, and look-ups by key."""
        leader, store = self.leader, self.store
        store.wait_for_index()
        assert (store.log.min_offset, store.log.max_offset) == (leader.start, leader.end)
        assert log_bytes(store) == leader.data
        assert entries_of(store, leader.start) == leader.entries
        assert found_by_keys(store, leader.start) == leader.found


def open_follower(seams: Seams, leader: LeaderLog) -> MessageStore:
    assert isinstance(seams.clock, SimulatedClock)
    options = StoreOptions(
        format=leader.format, boot_id=seams.clock.boot_id, pid=1, leader=LEADER, scrubs=True
    )
    return MessageStore.open(ROOT, leader.config, seams, options)
