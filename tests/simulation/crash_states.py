"""Every operation of a workload as a place to crash, and what a store makes of each.

A world works through its seed; wherever a crash would leave another state behind, copies of its
disk are recovered and examined, one for each way to crash, and the world goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mqstore.storage.message_store import Durability, MessageStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.driver import QUEUES, NewMessage, message_of
from tests.simulation.inode import Loss
from tests.simulation.invariants import Checker
from tests.simulation.world import World, open_store, seams_on
from tests.unit.storage.puts import put_message

POINTS: Final = 2_000
"""Crash points of one workload."""
MARK: Final = 10**9
"""Number of the message that is put after a recovery."""


class Crash(StrEnum):
    """A way to crash."""

    KILL = "kill"
    """The process dies; the page cache stays."""
    DROP = Loss.DROP
    PREFIX = Loss.PREFIX
    TORN_512 = Loss.TORN_512
    TORN_4096 = Loss.TORN_4096

    @property
    def loss(self) -> Loss | None:
        return None if self is Crash.KILL else Loss(self.value)


@dataclass(frozen=True, slots=True)
class Replay:
    """One crash state, or with nothing but a seed the whole workload; ``str`` and ``parse`` are
    what ``make simulate SEED=`` takes."""

    seed: int
    point: int | None = None
    crash: Crash | None = None

    def __str__(self) -> str:
        parts = (self.seed, self.point, self.crash)
        return ".".join(str(part) for part in parts if part is not None)

    @classmethod
    def parse(cls, text: str) -> Replay:
        """ValueError for what is no SEED, SEED.POINT or SEED.POINT.CRASH."""
        seed, *rest = text.split(".")
        point = int(rest[0]) if rest else None
        return cls(int(seed), point, Crash(rest[1]) if len(rest) > 1 else None)


class CrashStateBroken(AssertionError):
    """A state that does not keep what was promised; says how to see it again."""


class CrashStates:
    """Runs one workload, or the part of it that a shard or a replay requests."""

    def __init__(
        self,
        replay: Replay,
        *,
        shard: int = 0,
        shards: int = 1,
        points: int = POINTS,
        on_state: Callable[[Replay], None] = lambda _: None,
    ) -> None:
        self.world = World(replay.seed)
        self.world.on_crash_point = self._crash_point
        self.states = 0
        self._replay = replay
        self._shard = shard
        self._shards = shards
        self._points = points if replay.point is None else replay.point + 1
        self._on_state = on_state
        self._next = 0
        self._found: CrashStateBroken | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""

    def run(self) -> int:
        """How many states were examined. Raises CrashStateBroken."""
        try:
            while self._next < self._points and self._found is None:
                self.world.live(1)
        except CrashStateBroken as broken:
            self._found = self._found or broken
        except Exception as error:
            self._found = self._found or self._broken(Replay(self._replay.seed), error)
        if self._found is not None:
            raise self._found
        return self.states

    def _crash_point(self) -> None:
        if self._found is not None:
            return
        point, self._next = self._next, self._next + 1
        wanted = self._replay.point
        if point >= self._points or point % self._shards != self._shard:
            return
        if wanted is not None and point != wanted:
            return
        for crash in Crash if self._replay.crash is None else [self._replay.crash]:
            self._examine(Replay(self._replay.seed, point, crash))

    def _examine(self, state: Replay) -> None:
        assert state.crash is not None
        try:
            examine(self.world, state.crash, random.Random(str(state)).getrandbits(32))
        except Exception as error:
            self._found = self._broken(state, error)
            raise self._found from error
        self.states += 1
        self._on_state(state)

    def _broken(self, replay: Replay, error: Exception) -> CrashStateBroken:
        return CrashStateBroken(f"{error!r}; see it again with: make simulate SEED={replay}")


def crashed(world: World, crash: Crash, seed: int) -> SimulatedDisk:
    """The disk that a crash at this moment leaves."""
    return world.disk.kill() if crash.loss is None else world.disk.power_cut(seed, crash.loss)


def examine(world: World, crash: Crash, seed: int) -> None:
    """Recover what a crash at this moment leaves, and hold it to all that was promised.

    AssertionError, or whatever the store raises, when it does not keep it.
    """
    is_kill = crash is Crash.KILL
    floor = world.floor_after_kill() if is_kill else world.floor_after_power_cut()
    torn = world.torn or (not is_kill and world.disk.has_lost_pages)
    torn = torn or crash in (Crash.TORN_512, Crash.TORN_4096)
    disk = crashed(world, crash, seed)
    seams = seams_on(disk, seed)
    store = open_store(seams, world.format, world.config)
    Checker(store, world.model, seams, random.Random(seed), torn=torn).check(floor)
    if seed % 2:
        _recover_again(world, store, disk, seed)
    else:
        _go_on(world, store, disk, seed)
    assert not disk.holes_written, disk.holes_written


def _recover_again(world: World, store: MessageStore, disk: SimulatedDisk, seed: int) -> None:
    """A second recovery changes nothing."""
    before = _contents(store)
    again = open_store(seams_on(disk.kill(), seed), world.format, world.config)
    assert again.recovery.plan.cut_bytes == 0
    assert _contents(again) == before, "a second recovery changed the store"


def _go_on(world: World, store: MessageStore, disk: SimulatedDisk, seed: int) -> None:
    """Continue after a recovery: messages acknowledged now must survive a power cut."""
    before = _log_bytes(store)
    new = NewMessage(MARK, 50, 0, None)
    message = message_of(store, ("T", seed % QUEUES), new, disk.clock.now_ms())
    placed = put_message(store, message, Durability.SYNC)
    again = open_store(seams_on(disk.power_cut(seed, Loss.DROP), seed), world.format, world.config)
    assert _log_bytes(again).startswith(before), "what was recovered was not durable"
    assert again.log.record_at(placed.physical_offset).body == new.body
    queue = again.queues.get("T", placed.queue_id)
    assert queue is not None
    entry = queue.entry(placed.queue_offset)
    assert entry is not None
    assert (entry.physical_offset, entry.size) == (placed.physical_offset, placed.size)


def _log_bytes(store: MessageStore) -> bytes:
    return b"".join(bytes(file.view[: file.wrote_position]) for file in store.log.files.files)


def _contents(store: MessageStore) -> dict[str, bytes]:
    """Every byte of the log and of the queues, by what it is of."""
    contents = {"log": _log_bytes(store)}
    for queue in store.queues.all():
        content = b"".join(bytes(file.view) for file in queue.files.files)
        contents[f"{queue.topic}/{queue.queue_id} {queue.first_index} {queue.max_index}"] = content
    return contents
