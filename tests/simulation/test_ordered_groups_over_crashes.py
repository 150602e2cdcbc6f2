"""An ordered group over crashes, compared with a model: its members, their epochs, and the order.

Members join, leave, or let their sessions end; they receive, acknowledge in order or not, return
messages; the process is killed, or the machine loses power. In each queue the group gets the
messages one after the other, none is skipped, and none is acknowledged by a member that has lost
its queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqstore.storage.errors import GroupOrdered, GroupShared, MemberUnknown
from mqstore.storage.message_store import Durability
from mqstore.storage.shared_groups import (
    Delivered,
    ReceiptStatus,
    SharedGroups,
    Subscription,
    decode_receipts,
)
from mqstore.storage.tables.subscription_groups import GroupConfig
from tests.long_runs import nightly_examples
from tests.simulation.delayed_store import CONFIG, DelayedStore
from tests.simulation.inode import Loss
from tests.unit.storage.puts import put_message

QUEUES: Final = 3
SESSION_S: Final = 10.0
LEASE_S: Final = 4.0
RETRIES: Final = 2
MEMBERS: Final = st.sampled_from("abc")
WANTED: Final = [Subscription("T")]

OK: Final = ReceiptStatus.OK
Place = tuple[int, int]
"""Queue id and queue offset of a message."""


@dataclass
class Held:
    """A message that a member was given."""

    member: str
    delivered: Delivered
    epoch: int

    @property
    def place(self) -> Place:
        return self.delivered.record.queue_id, self.delivered.record.queue_offset


class OrderedGroup(RuleBasedStateMachine):
    """One group, with the model of what its queues have done."""

    def __init__(self) -> None:
        super().__init__()
        self.world = DelayedStore(config=CONFIG)
        self.world.store.create_topic("T", queues=QUEUES)
        self.world.store.groups.put("g", lambda _: GroupConfig("g", retry_times_max=RETRIES))
        self.groups = self._open()
        self.number = 0
        self.done = [0] * QUEUES
        """The first offset of each queue that is neither acknowledged nor a dead letter."""
        self.saved = [0] * QUEUES
        """The least that it may be after a crash."""
        self.dead = 0
        """Number of dead letters."""
        self.held: list[Held] = []
        self.holders: dict[tuple[int, int], str] = {}
        """By queue and epoch, the only member that may hold it."""
        self.epochs = [0] * QUEUES
        """The highest epoch of each queue."""
        self.sessions: dict[str, float] = {}
        """The end of the session of each member, monotonic."""
        self.is_emptied = False

    def _open(self) -> SharedGroups:
        return SharedGroups(self.world.store, self.world.machine.seams, 0)

    @property
    def now(self) -> float:
        return self.world.machine.clock.monotonic()

    @property
    def live(self) -> set[str]:
        return {name for name, until in self.sessions.items() if until > self.now}

    # members ------------------------------------------------------------------------------

    @rule(member=MEMBERS)
    def join(self, member: str) -> None:
        self.groups.join("g", member, ["T"], SESSION_S)
        self.sessions[member] = self.now + SESSION_S
        self.look()

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.groups.leave("g", member)
        self.sessions.pop(member, None)
        self.look()

    def look(self) -> None:
        """Compare members and queues with the model."""
        views = self.groups.members("g")
        assert {each.name for each in views} == self.live
        for view in views:
            for queue, epoch in view.epochs.items():
                if queue.topic == "T":
                    known = self.holders.setdefault((queue.queue_id, epoch), view.name)
                    assert known == view.name, "two members under one epoch"
                    assert epoch >= self.epochs[queue.queue_id], "an epoch went back"
                    self.epochs[queue.queue_id] = epoch
        held = [queue for each in views for queue in [*each.epochs, *each.leaving]]
        assert len(held) == len(set(held)), "a queue is held twice"
        if views:
            assert {each for each in held if each.topic == "T"} == {
                ("T", each) for each in range(QUEUES)
            }

    # messages -----------------------------------------------------------------------------

    @rule(queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 4))
    def put(self, queue_id: int, count: int) -> None:
        for _ in range(count):
            message = self.world.message(self.number, 0, queue_id=queue_id)
            put_message(self.world.store, message, Durability.SYNC)
            self.number += 1

    @rule(member=MEMBERS, count=st.integers(1, 6))
    def receive(self, member: str, count: int) -> None:
        if member not in self.live:
            with pytest.raises(MemberUnknown):
                self._receive(member, count)
            return
        self.look()
        found = self._receive(member, count)
        self._note_dead()
        epochs = {each.name: each.epochs for each in self.groups.members("g")}[member]
        following = list(self.done)
        for each in found:
            queue_id, offset = each.record.queue_id, each.record.queue_offset
            assert offset == following[queue_id], "a message is out of order"
            following[queue_id] += 1
            (receipt,) = decode_receipts([each.receipt])
            assert receipt.epoch == epochs[("T", queue_id)]  # type: ignore[index]
            self._check_free(queue_id, offset)
            self.held.append(Held(member, each, receipt.epoch or 0))

    def _check_free(self, queue_id: int, offset: int) -> None:
        """No member can acknowledge a message that is delivered again."""
        self.held = [
            each for each in self.held if each.place[0] != queue_id or each.place[1] < offset
        ]

    def _receive(self, member: str | None, count: int) -> list[Delivered]:
        return self.groups.receive(
            "g", WANTED, count=count, max_bytes=1 << 20, invisible_s=LEASE_S, member=member
        ).messages

    def _note_dead(self) -> None:
        """Follow the group's offsets over dead letters."""
        dead, before = len(self.world.records("%DLQ%g", 0)), sum(self.done)
        self.done = [each.committed or 0 for each in self.world.store.offsets.of("g", "T")]
        assert sum(self.done) - before == dead - self.dead, "passed over, and no dead letter"
        self.dead = dead

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if not self.held:
            return
        held = data.draw(st.sampled_from(self.held))
        queue_id, offset = held.place
        self.look()
        (status,) = self.groups.acknowledge("g", decode_receipts([held.delivered.receipt]))
        if status is OK:
            assert self.epochs[queue_id] == held.epoch, "a stale acknowledgement counts"
            assert self.holders[queue_id, held.epoch] == held.member
            assert offset <= self.done[queue_id], "a message was skipped"
            self.done[queue_id] = max(self.done[queue_id], offset + 1)
        self.held.remove(held)

    @rule(data=st.data(), level=st.sampled_from([0, 0, 1, -1]))
    def give_back(self, data: st.DataObject, level: int) -> None:
        if not self.held:
            return
        held = data.draw(st.sampled_from(self.held))
        queue_id, offset = held.place
        before = self.done[queue_id]
        given = decode_receipts([held.delivered.receipt])
        (status,), _ = self.groups.give_back("g", given, level)
        if status is OK and offset >= before:
            assert offset == before
            self._note_dead()
            is_dead = level == -1 or held.delivered.attempt > RETRIES
            assert self.done[queue_id] == before + is_dead

    @rule()
    def receive_as_shared(self) -> None:
        if self.live:
            with pytest.raises(GroupOrdered):
                self._receive(None, 1)
            return
        if self._receive(None, 1):
            with pytest.raises(GroupShared):
                self.groups.join("g", "a", ["T"], SESSION_S)
        self._note_dead()
        self.held.clear()
        self.world.run(LEASE_S + 0.1)

    # time and crashes ---------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 2.0, LEASE_S + 0.1, SESSION_S + 0.1]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule()
    def save(self) -> None:
        self.groups.save()
        self.saved = list(self.done)

    @rule(loss=st.sampled_from([None, *Loss]), seed=st.integers(0, 1000))
    def crash(self, loss: Loss | None, seed: int) -> None:
        live = self.live
        disk = self.world.machine.disk
        self.world.restart(disk.kill() if loss is None else disk.power_cut(seed, loss))
        self.groups = self._open()
        self.sessions = dict.fromkeys(live, self.now + SESSION_S)
        committed = [each.committed or 0 for each in self.world.store.offsets.of("g", "T")]
        for least, now, most in zip(self.saved, committed, self.done, strict=True):
            assert least <= now <= most, "a saved acknowledgement is gone, or one was skipped"
        self.done = committed
        self.dead = len(self.world.records("%DLQ%g", 0))

    @invariant()
    def members_are_those_of_the_model(self) -> None:
        self.look()

    def teardown(self) -> None:
        """Two members consume all, each its share."""
        for member in list(self.live):
            self.leave(member)
        self.world.run(SESSION_S + LEASE_S)
        for _ in range(self.number + 3 * QUEUES * RETRIES):
            for member in "xy":
                self.join(member)
                self.receive(member, 100)
                mine = [each for each in self.held if each.member == member]
                for each in sorted(mine, key=lambda one: one.place):
                    given = decode_receipts([each.delivered.receipt])
                    assert self.groups.acknowledge("g", given) == [OK]
                    self.held.remove(each)
                    self.done[each.place[0]] = each.place[1] + 1
            self.world.run(1.0)
            ends = [each.max_offset for each in self.world.store.offsets.of("g", "T")]
            if self.done == ends:
                break
        assert self.done == ends
        shares = [
            len([queue for queue in each.epochs if queue.topic == "T"])
            for each in self.groups.members("g")
        ]
        assert sorted(shares) == [1, 2]
        self.world.store.close()


OrderedGroup.TestCase.settings = settings(
    max_examples=nightly_examples(25),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_an_ordered_group_follows_its_model = OrderedGroup.TestCase
