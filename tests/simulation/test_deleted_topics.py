"""A topic is deleted and made anew while processes die and the power is cut."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import OffsetOutOfRange
from mqstore.storage.message_store import Durability, MessageStore, StoreOptions
from tests.long_runs import few_first
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints, crashed
from tests.simulation.driver import CONFIG, NewMessage, message_of
from tests.unit.storage.puts import put_message

ROOT = Path("/store")
OLD, NEW = 20, 30
"""Messages of T before its deletion, and after it was made anew."""


class Life:
    """One store; every effect on its disk may be the last, and what is found then is checked."""

    def __init__(self, seed: int) -> None:
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.chance = random.Random(seed)
        self.store = open_store(self.machine)
        self.durable = {"T": 0, "other": 0}
        """How many messages of each topic were acknowledged as being on disk."""
        self.deleted = False
        """Whether the deletion was answered."""
        self.deleting = False

    def put(self, topic: str, number: int) -> None:
        new = NewMessage(number, 40, number % 7, None)
        now_ms = self.machine.clock.now_ms()
        message = message_of(self.store, (topic, number % 2), new, now_ms)
        put_message(self.store, message, Durability.SYNC)
        self.durable[topic] += 1

    def live(self) -> int:
        """Returns the number of crashes."""
        for topic in ("T", "other"):
            self.store.create_topic(topic, queues=2)
            for number in range(OLD):
                self.put(topic, number)
        self.store.offsets.commit("g", [Commit("T", 0, 5)])
        self.store.offsets.save()
        points = CrashPoints(self.chance, lambda disk, _: self.check(disk), self._is_chosen)
        with points.of(self.machine.disk):
            self.deleting = True
            self.store.delete_topic("T")
            self.deleted, self.deleting, self.durable["T"] = True, False, 0
            self.store.create_topic("T", queues=2)
            for number in range(OLD, OLD + NEW):
                self.put("T", number)
                self.put("other", number)
            self.machine.scheduler.run_for(61)
            self.store.close()
        self.check(crashed(self.machine.disk, None, self.chance))
        return points.states

    def _is_chosen(self) -> bool:
        return self.deleting or self.chance.random() < 0.02

    def check(self, disk: SimulatedDisk) -> None:
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        with open_store(machine) as store:
            t, other = numbers(store, "T"), numbers(store, "other")
            old = {number for number in t if number < OLD}
            assert old in (set(), set(range(OLD))), "half of a topic is no topic"
            assert not (self.deleted and old), "deleted messages came back"
            assert self.durable["other"] <= len(other) == len(set(other))
            if not self.deleting:
                assert self.durable["T"] <= len(t) == len(set(t))
            if not old:
                assert ("g" in store.offsets.groups()) <= self.deleting
            assert max(queue_offsets(store).values()) == 1, "a queue offset was given out twice"
            assert store.dispatcher.counts.different == 0


def open_store(machine: SimulatedMachine) -> MessageStore:
    return MessageStore.open(ROOT, CONFIG, machine.seams, StoreOptions(boot_id="0" * 32, pid=1))


def numbers(store: MessageStore, topic: str) -> list[int]:
    """The readable messages of a topic's queues."""
    found = []
    for queue in store.queues.all():
        if queue.topic == topic:
            pull = store.lookups.records(topic, queue.queue_id, 0, 1000)
            found += [int(record.body.partition(b":")[0]) for record in pull.records]
    return found


def queue_offsets(store: MessageStore) -> Counter[tuple[str, int, int]]:
    """Queue offsets of every record in the log."""
    found: Counter[tuple[str, int, int]] = Counter()
    offset = store.log.min_offset
    while offset < store.log.max_offset:
        if (record := readable(store, offset)) is None:
            size = CONFIG.mapped_file_size_commit_log
            offset = (offset // size + 1) * size
            continue
        found[record.topic, record.queue_id, record.queue_offset] += 1
        offset += record.size
    return found


def readable(store: MessageStore, offset: int) -> Record | None:
    """None at a segment's end."""
    try:
        return store.log.record_at(offset)
    except OffsetOutOfRange:
        return None


@pytest.mark.parametrize("seed", few_first([1, 2, 3]))
def test_every_crash_of_a_deletion_leaves_all_of_the_topic_or_nothing(seed: int) -> None:
    assert Life(seed).live() > 20
