"""Topics and groups are created, changed and deleted while processes die and the power is cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.tables import java_json
from mqstore.storage.tables.subscription_groups import GroupConfig
from tests.long_runs import few_first
from tests.simulation import SimulatedDisk, SimulatedMachine
from tests.simulation.crashes import CrashPoints
from tests.simulation.driver import CONFIG

pytestmark = pytest.mark.slow

ROOT = Path("/store")
PATHS = StorePaths(ROOT)
CHANGES = 60


class Life:
    """One store; effects on its disk may be the last, and what is found then is checked."""

    def __init__(self, seed: int) -> None:
        self.machine = SimulatedMachine(seed)
        self.machine.disk.make_directories(ROOT)
        self.chance = random.Random(seed)
        self.store = open_store(self.machine)
        self.topics: dict[str, set[int | None]] = {}
        """By topic, each number of queues that it may have; None: it may be missing."""
        self.groups: dict[str, set[bool]] = {}
        """By group, whether it may exist."""

    def live(self) -> int:
        """Returns the number of crashes."""
        points = CrashPoints(
            self.chance, lambda disk, _: self.check(disk), lambda: self.chance.random() < 0.15
        )
        with points.of(self.machine.disk):
            for number in range(CHANGES):
                self.change_topic(f"t{self.chance.randrange(6)}")
                self.put_group(f"g{number}")
                if self.chance.random() < 0.2:
                    self.machine.scheduler.run_for(6)  # the files are saved
            self.store.close()
        self.check_files(self.machine.disk)
        return points.states

    def change_topic(self, name: str) -> None:
        before = self.topics.get(name, {None})
        if before != {None} and self.chance.random() < 0.3:
            self.topics[name] = before | {None}
            self.store.delete_topic(name)
            self.topics[name] = {None}
            return
        queues = self.chance.randrange(1, 1000)
        self.topics[name] = before | {queues}
        self.store.put_topic(name, TopicChange(queues, queues))
        self.topics[name] = {queues}

    def put_group(self, name: str) -> None:
        self.groups[name] = {False, True}
        self.store.groups.put(name, lambda found: GroupConfig(found.name, retry_queues=2))
        self.groups[name] = {True}

    def check(self, disk: SimulatedDisk) -> None:
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        with open_store(machine) as store:
            found = {topic.name: topic.read_queues for topic in store.topics()}
            for name, allowed in self.topics.items():
                assert found.get(name) in allowed, (name, "was acknowledged otherwise")
            groups = {group.config.name for group in store.groups.all()}
            for name, may_exist in self.groups.items():
                assert (name in groups) in may_exist, (name, "was acknowledged otherwise")
        self.check_files(disk)

    def check_files(self, disk: SimulatedDisk) -> None:
        """A broker that opens the closed store finds everything."""
        topics = table(disk, "topics.json", "topicConfigTable")
        for name, allowed in self.topics.items():
            assert topics.get(name, {}).get("readQueueNums") in allowed
        groups = table(disk, "subscriptionGroup.json", "subscriptionGroupTable")
        for name, may_exist in self.groups.items():
            assert (name in groups) in may_exist
        for name in ("topics.json", "subscriptionGroup.json"):
            journal = disk.stat(PATHS.journal_of(name))
            assert journal is None or not journal.size


def open_store(machine: SimulatedMachine) -> MessageStore:
    return MessageStore.open(ROOT, CONFIG, machine.seams, StoreOptions(boot_id="0" * 32, pid=1))


def table(disk: SimulatedDisk, name: str, entries: str) -> dict[str, Any]:
    path = PATHS.config / name
    if disk.stat(path) is None:
        return {}
    found: dict[str, Any] = java_json.parse(disk.read(path).decode())[entries]
    return found


@pytest.mark.parametrize("seed", few_first(range(4), others=pytest.mark.nightly))
def test_no_acknowledged_change_is_lost(seed: int) -> None:
    assert Life(seed).live() > 20
