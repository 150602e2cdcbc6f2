"""Shared groups over crashes: no message is skipped, no saved acknowledgement is forgotten.

A seeded workload receives, acknowledges, returns, extends, lets leases expire, saves and resets.
Wherever a crash would leave another state behind, some copies of the disk are opened, and all that
the group still gets is received.
"""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.admin.group_offsets import Position
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability
from mqstore.storage.shared_groups import (
    Delivered,
    Receipt,
    ReceiptStatus,
    SharedGroups,
    Subscription,
    decode_receipts,
)
from mqstore.storage.tables import java_json
from mqstore.storage.tables.subscription_groups import GroupConfig
from tests.long_runs import examples, few_first, nightly_examples
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.delayed_store import CONFIG, ROOT, DelayedStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_message

SMALL: Final = CONFIG.model_copy(
    update={
        "mapped_file_size_commit_log": 16 << 10,
        "flush_consumer_offset_interval": 2_000,
        "message_delay_level": "1s 2s 3s 4s",
    }
)
QUEUES: Final = 2
LEASE_S: Final = 5.0
DUE_S: Final = 6.0
"""After which leases have expired and the longest delay level of a retry is over."""
ROUNDS_MAX: Final = 12
GROUP: Final = GroupConfig("g", retry_times_max=3)
DEAD_LETTERS: Final = "%DLQ%g"

OK: Final = ReceiptStatus.OK

Place = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


class Consumers:
    """The shared groups of one process, and what its one group was given."""

    def __init__(self, world: DelayedStore) -> None:
        self.world = world
        self.groups = SharedGroups(world.store, world.machine.seams, 0)
        self.held: list[Delivered] = []

    def receive(self, count: int) -> list[Delivered]:
        wanted = [Subscription("T")]
        found = self.groups.receive(
            "g", wanted, count=count, max_bytes=1 << 20, invisible_s=LEASE_S
        ).messages
        self.held += found
        return found

    def receive_all(self) -> list[Delivered]:
        """Receive and acknowledge until nothing comes any more."""
        every: list[Delivered] = []
        for _ in range(ROUNDS_MAX):
            self.world.run(DUE_S)
            found = self.receive(1_000)
            if found:
                self.groups.acknowledge("g", receipts(found))
            every += found
        assert not found, "messages come again and again"
        return every

    def records(self, topic: str) -> list[Record]:
        return [found for queue in range(QUEUES) for found in self.world.records(topic, queue)]


class Life:
    """Consumers of one group at work, with restarts."""

    def __init__(self, seed: int, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are looked at."""
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.format = self.rng.choice(list(StoreFormat))
        self.world = DelayedStore(seed, config=SMALL, store_format=self.format)
        self.world.store.create_topic("T", queues=QUEUES)
        self.world.store.groups.put("g", lambda _: GROUP)
        self.stored: set[int] = set()
        """Numbers of messages of T whose put returned."""
        self.durable: set[int] = set()
        self.acknowledged: set[int] = set()
        """Numbers that the group may get no more: acknowledged, or passed over by a reset."""
        self.settled: set[Place] = set()
        """Messages that were acknowledged or returned, or whose settling began."""
        self.known: set[Place] = set()
        """Those of them that the present process has."""
        self.saved: set[Place] = set()
        """Those of them that a save which returned has."""
        self.returned: set[Place] = set()
        """Messages of which a copy is in the log: the group gets the copy alone."""
        self.next_number = self.states = 0
        self.found: BaseException | None = None
        """Kept here: the store takes what a crash point raises for a failing disk."""
        self._begin()
        self.consumers.groups.save()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._step()
            finally:
                if self.found is not None:
                    raise self.found
        self.world.machine.disk.before_effect = None
        self.check(self.world.machine.disk.kill(), None)

    def _begin(self) -> None:
        self.consumers = Consumers(self.world)
        self.world.machine.disk.before_effect = self._crash_point

    def _step(self) -> None:
        match self.rng.randrange(24):
            case 0:
                self._restart(self.rng.choice(CRASHES))
            case 1:
                self._save()
                self.world.store.close()
                self._restart(None)
            case 2 | 3 | 4:
                self.world.run(self.rng.random() * 4)
            case 5 | 6 | 7:
                self._save()
            case 8:
                self._reset()
            case 9 | 10 | 11 | 12:
                self._put()
            case 13 | 14 | 15 | 16:
                self.consumers.receive(self.rng.randrange(1, 6))
            case 17 | 18:
                self._give_back()
            case 19:
                receipts_ = receipts(self._some())
                self.consumers.groups.extend("g", receipts_, self.rng.choice([0, 1, 9]))
            case _:
                self._acknowledge()

    def _put(self) -> None:
        number, self.next_number = self.next_number, self.next_number + 1
        durability = self.rng.choice(list(Durability))
        message = self.world.message(number, 0, queue_id=self.rng.randrange(QUEUES))
        put_message(self.world.store, message, durability)
        self.stored.add(number)
        if durability is Durability.SYNC:
            self.durable = set(self.stored)

    def _some(self) -> list[Delivered]:
        held = self.consumers.held
        self.rng.shuffle(held)
        count = self.rng.randrange(1, 5)
        found, self.consumers.held = held[:count], held[count:]
        return found

    def _acknowledge(self) -> None:
        given = self._some()
        before = self.settled, self.acknowledged
        self.settled = before[0] | set(map(place, given))
        self.acknowledged = before[1] | set(map(number, given))
        statuses = self.consumers.groups.acknowledge("g", receipts(given))
        done = [each for each, status in zip(given, statuses, strict=True) if status == OK]
        self._note_settled(before[0], done)
        self.acknowledged = before[1] | set(map(number, done))

    def _give_back(self) -> None:
        given, before = self._some(), self.settled
        self.settled = before | set(map(place, given))
        level = self.rng.choice([0, 1, 2, -1])
        statuses, _ = self.consumers.groups.give_back("g", receipts(given), level)
        done = [each for each, status in zip(given, statuses, strict=True) if status == OK]
        self._note_settled(before, done)
        self.returned |= set(map(place, done))

    def _note_settled(self, before: set[Place], done: list[Delivered]) -> None:
        self.settled = before | set(map(place, done))
        self.known |= set(map(place, done))

    def _save(self) -> None:
        self.consumers.groups.save()
        self.saved = set(self.known)
        self.world.store.log.sync()  # a save without changes syncs nothing
        self.durable = set(self.stored)

    def _reset(self) -> None:
        offsets = self.world.store.offsets
        to = self.rng.choice([Position.EARLIEST, Position.EARLIEST, Position.LATEST])
        changes = offsets.plan_reset("g", "T", to)
        of_topic = {each for each in self.settled if each[0] == "T"}
        self.saved -= of_topic
        self.returned = {each for each in self.returned if each[0] != "T"}
        passed = {(c.topic, c.queue_id, n) for c in changes for n in range(c.after)}
        self.settled |= passed
        if passed:
            self.acknowledged |= self.stored
        offsets.apply("g", changes)
        self.known = {each for each in self.known if each[0] != "T"} | passed
        self.saved |= passed
        if to is Position.EARLIEST:
            self.acknowledged.clear()
            self.settled -= of_topic

    def _restart(self, loss: Loss | None) -> None:
        disk = crashed(self.world.machine.disk, loss, self.rng)
        self.world.restart(disk)
        if loss is not None:
            self.returned &= self.saved
        held = self.consumers.held
        self._begin()
        self.consumers.held = held if loss is None else []
        self.stored &= {int(each.body) for each in self.consumers.records("T")}
        self.durable = set(self.stored)
        ends = self.world.store.log.offsets
        self.settled = {each for each in self.settled if each[2] < ends.next(each[0], each[1])}
        assert self.saved <= self.settled
        self.known = set(self.saved)

    # crash states -------------------------------------------------------------------------

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        self.states += 1
        loss = self.chance.choice(CRASHES)
        try:
            self.check(crashed(self.world.machine.disk, loss, self.chance), loss)
        except BaseException as error:
            self.found = error
            raise

    def check(self, disk: SimulatedDisk, loss: Loss | None) -> None:
        """Open what a crash left, and compare what the group gets with what it must get."""
        committed = committed_offsets(disk)
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        world = DelayedStore(config=SMALL, store_format=self.format, machine=machine)
        after = Consumers(world)
        delivered = after.receive_all()
        buried = {int(each.body) for each in after.records(DEAD_LETTERS)}

        for each in after.records("T"):
            where = "T", each.queue_id, each.queue_offset
            if each.queue_offset < committed.get(each.queue_id, 0):
                assert where in self.settled or int(each.body) in buried, f"{where} is passed over"
        again = self.saved & set(map(place, delivered))
        assert not again, f"delivered again, although it was saved: {again}"
        twice = self.returned & set(map(place, delivered)) if loss is None else set()
        assert not twice, f"delivered, and its copy too: {twice}"
        promised = (self.stored if loss is None else self.durable) - self.acknowledged
        missing = promised - set(map(number, delivered)) - buried
        assert not missing, f"never delivered: {missing}"


def receipts(delivered: list[Delivered]) -> list[Receipt]:
    return decode_receipts(each.receipt for each in delivered)


def place(delivered: Delivered) -> Place:
    record = delivered.record
    return record.topic, record.queue_id, record.queue_offset


def number(delivered: Delivered) -> int:
    return int(delivered.record.body)


def committed_offsets(disk: SimulatedDisk) -> dict[int, int]:
    """The group's offsets in T, by queue id, as a broker would read them."""
    path = ROOT / "config" / "consumerOffset.json"
    if disk.stat(path) is None:
        return {}
    table = java_json.parse(disk.read(path).decode())["offsetTable"]
    return {int(queue): offset for queue, offset in table.get("T@g", {}).items()}


@pytest.mark.parametrize("seed", few_first(range(4)))
def test_after_any_crash_each_message_is_delivered(seed: int) -> None:
    life = Life(seed, examined=0.1)
    life.live(120)
    assert life.states > 10


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_restarts_each_message_is_delivered(seed: int) -> None:
    Life(seed).live(120)


@pytest.mark.slow
@settings(max_examples=nightly_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_over_long_lives_each_message_is_delivered(seed: int) -> None:
    Life(seed, examined=0.05).live(400)
