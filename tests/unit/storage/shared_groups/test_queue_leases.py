"""The leases of one group in one queue, compared with a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqstore.storage.shared_groups.queue_leases import OUTDATED_MAX, LeaseState, QueueLeases
from tests.long_runs import examples


@dataclass
class Model:
    """Each offset by what happened to it."""

    next: int = 0
    acknowledged: set[int] = field(default_factory=set)
    leases: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Offset: lease and deadline, for messages that are leased."""
    attempts: dict[int, int] = field(default_factory=dict)

    @property
    def pending(self) -> list[int]:
        return [each for each in range(self.next) if each not in self.acknowledged]

    @property
    def waiting(self) -> list[int]:
        return [each for each in self.pending if each not in self.leases]


class LeasesMachine(RuleBasedStateMachine):
    """Consumers that lease, acknowledge, extend, release, and let leases expire."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = QueueLeases(0)
        self.model = Model()
        self.now = 0.0
        self.last_lease = 0

    def _lease(self, offsets: list[int], seconds: float) -> None:
        self.last_lease += 1
        attempts = self.leases.lease(offsets, self.last_lease, self.now + seconds)
        for offset in offsets:
            self.model.attempts[offset] = self.model.attempts.get(offset, 0) + 1
            self.model.leases[offset] = (self.last_lease, self.now + seconds)
        assert attempts == [self.model.attempts[each] for each in offsets]

    @rule(steps=st.lists(st.integers(1, 3), min_size=1, max_size=5), seconds=st.floats(0.5, 20))
    def deliver_new(self, steps: list[int], seconds: float) -> None:
        offsets = list(accumulate(steps, initial=self.model.next - 1))[1:]
        skipped = set(range(self.model.next, offsets[-1])) - set(offsets)
        self.model.acknowledged.update(skipped)
        self._lease(offsets, seconds)
        self.model.next = offsets[-1] + 1

    @rule(count=st.integers(1, 5), seconds=st.floats(0.5, 20))
    def deliver_again(self, count: int, seconds: float) -> None:
        offsets = list(self.leases.waiting(count))
        assert offsets == self.model.waiting[:count]
        if offsets:
            self._lease(offsets, seconds)

    @rule(seconds=st.floats(0, 15))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        self.leases.expire(self.now)
        for offset, (_, deadline) in list(self.model.leases.items()):
            if deadline <= self.now:
                del self.model.leases[offset]

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), how=st.sampled_from(["acknowledge", "release", "give back", "extend"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model.leases)))
        lease, _ = self.model.leases[offset]
        assert self.leases.state_of(offset, lease) is LeaseState.HELD
        assert self.leases.state_of(offset, lease + 1_000_000) is LeaseState.LOST
        if how == "extend":
            self.leases.extend(offset, lease, self.now + 30)
            self.model.leases[offset] = (lease, self.now + 30)
            return
        del self.model.leases[offset]
        if how == "release":
            self.leases.release(offset)
        elif how == "give back":
            self.leases.give_back(offset)
            self.model.attempts[offset] -= 1
        else:
            self.leases.acknowledge(offset)
            self.model.acknowledged.add(offset)

    @precondition(lambda self: self.model.next)
    @rule(data=st.data(), is_stale=st.booleans())
    def acknowledge_batch(self, data: st.DataObject, is_stale: bool) -> None:
        places = st.lists(st.integers(0, self.model.next + 1), unique=True)
        given = [
            (offset, self.model.leases.get(offset, (1, 0.0))[0] + 1_000_000 * is_stale)
            for offset in data.draw(places)
        ]
        states = [self.leases.state_of(*each) for each in given]
        offsets, leases = [each for each, _ in given], [each for _, each in given]
        others = self.leases.acknowledge_held(offsets, leases)
        held = dict.fromkeys(range(len(given)), LeaseState.HELD)
        assert list((held | others).values()) == states
        for (offset, _), state in zip(given, states, strict=True):
            if state is LeaseState.HELD:
                self.model.acknowledged.add(offset)
                self.model.leases.pop(offset, None)

    @rule(further=st.integers(0, 4))
    def pass_over(self, further: int) -> None:
        self.leases.pass_to(self.model.next + further)
        self.model.acknowledged.update(range(self.model.next, self.model.next + further))
        self.model.next += further

    @rule()
    def be_killed_after_a_save(self) -> None:
        saved = self.leases.saved()
        self.leases = QueueLeases(self.leases.floor, self.leases.next)
        self.leases.restore(saved)
        for offset in self.model.leases:
            self.model.attempts[offset] -= 1
        self.model.leases.clear()

    @invariant()
    def the_lowest_pending_message_is_the_floor(self) -> None:
        pending = self.model.pending
        assert self.leases.floor == (pending[0] if pending else self.model.next)
        assert [offset for offset, _ in self.leases.saved()] == pending

    @invariant()
    def messages_are_counted_by_state(self) -> None:
        held = [deadline for _, deadline in self.model.leases.values() if deadline > self.now]
        done = [each for each in self.model.acknowledged if each >= self.leases.floor]
        counts = self.leases.count_leased(self.now), self.leases.done_count
        assert counts == (len(held), len(done))

    @invariant()
    def each_acknowledged_message_stays_so(self) -> None:
        for offset in self.model.acknowledged:
            assert self.leases.state_of(offset, 1) is LeaseState.ACKNOWLEDGED

    @invariant()
    def the_next_deadline_is_the_first_one(self) -> None:
        deadlines = [deadline for _, deadline in self.model.leases.values()]
        assert self.leases.next_deadline == min(deadlines, default=float("inf"))


LeasesMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
test_leases_are_those_of_the_model = LeasesMachine.TestCase


def test_a_message_in_front_of_the_next_one_was_acknowledged() -> None:
    leases = QueueLeases(5)
    assert leases.state_of(4, 1) is LeaseState.ACKNOWLEDGED
    assert leases.state_of(5, 1) is LeaseState.UNKNOWN


def test_messages_that_expired_are_forgotten() -> None:
    leases = QueueLeases(0)
    leases.lease([0], 1, 10.0)
    leases.lease([1], 2, 10.0)
    assert leases.drop_below(7) == 2
    assert (leases.floor, leases.next, leases.pending_count) == (7, 7, 0)


def test_a_lease_that_stays_keeps_no_later_ones_in_memory() -> None:
    leases = QueueLeases(0)
    leases.lease([0], 1, 10.0)
    for offset in range(1, 10 * OUTDATED_MAX):
        leases.lease([offset], 2, 1_000.0)
        leases.acknowledge(offset)
    assert len(leases._leases) <= 2 + OUTDATED_MAX
