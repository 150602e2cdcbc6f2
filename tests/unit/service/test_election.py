"""Candidates for the lead over one record: pauses anywhere, lost answers, clocks of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.election import (
    DURATION_S,
    GIVEN_UP_S,
    RENEW_DEADLINE_S,
    RETRY_S,
    Candidate,
    Lease,
    LeaseConflict,
    LeaseUnavailable,
    NotLeading,
)


@dataclass
class World:
    """A record and a fence, with the failures of their calls."""

    now: float = 0.0
    record: Lease | None = None
    writes: int = 0
    fence: int = 0
    raised: list[int] = field(default_factory=list)
    meanwhile: list[Callable[[], None]] = field(default_factory=list)
    """Calls made within the next calls of the record, one each."""

    def pause(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()


@dataclass
class Record:
    """The record, as one candidate reaches it."""

    world: World

    def read(self) -> Lease | None:
        self.world.pause()
        return self.world.record

    def write(self, lease: Lease) -> Lease:
        self.world.pause()
        present = "" if self.world.record is None else self.world.record.version
        if lease.version != present:
            raise LeaseConflict("it was written")
        self.world.writes += 1
        self.world.record = replace(lease, version=str(self.world.writes))
        self.world.pause()
        return self.world.record


def candidates(world: World, count: int) -> list[Candidate]:
    """Each with a clock of its own, far from the others'."""
    return [
        Candidate(Record(world), f"c{n}", f"http://c{n}", partial(_clock, world, 1e6 * n))
        for n in range(count)
    ]


def _clock(world: World, ahead_s: float) -> float:
    return world.now + ahead_s


def leaders(found: list[Candidate]) -> list[int]:
    return [n for n, each in enumerate(found) if _leads(each)]


def _leads(candidate: Candidate) -> bool:
    try:
        candidate.term()
    except NotLeading:
        return False
    return True


def later(world: World, found: list[Candidate], seconds: float) -> None:
    """Let every candidate run for so long."""
    end = world.now + seconds
    while world.now < end:
        for each in found:
            each.step()
        world.now += RETRY_S


def test_the_first_one_leads_and_goes_on_leading() -> None:
    world = World()
    one, two = found = candidates(world, 2)
    later(world, found, 10 * DURATION_S)
    assert leaders(found) == [0]
    assert (one.term(), two.leader_url()) == (1, "http://c0")
    with pytest.raises(NotLeading, match="another candidate leads"):
        two.term()


def test_another_one_takes_over_in_time_and_the_first_has_stopped_before() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    two.step()
    began = world.now
    while not _leads(two):
        world.now += RETRY_S
        two.step()
        assert not (_leads(one) and _leads(two))
    assert RENEW_DEADLINE_S < world.now - began <= DURATION_S + RETRY_S
    one.step()
    assert not _leads(one)


def test_what_was_given_back_is_taken_at_once() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    one.give_back()
    assert not _leads(one)
    assert one.leader_url() is None
    two.step()
    assert _leads(two)


def test_a_lease_given_up_is_left_to_others_and_taken_again_if_none_takes_it() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    one.give_up("no route")
    one.step()
    with pytest.raises(NotLeading, match="given up: no route"):
        one.term()
    world.now += RETRY_S
    two.step()
    assert leaders([one, two]) == [1]
    two.give_up("no route either")
    later(world, [two], GIVEN_UP_S + RETRY_S)
    assert leaders([one, two]) == [1]


def test_what_could_not_be_given_back_is_left_until_it_has_grown_old() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    two.step()
    world.meanwhile = [_lose]
    one.give_up("no route")
    later(world, [one, two], DURATION_S + RETRY_S)
    assert leaders([one, two]) == [1]


def test_one_that_led_twice_had_two_terms() -> None:
    world = World()
    (one,) = candidates(world, 1)
    one.step()
    world.now += DURATION_S
    assert not _leads(one)
    one.step()
    assert one.term() == 2


def test_a_fence_that_stands_higher_than_the_lease_is_passed() -> None:
    world = World()
    (one,) = candidates(world, 1)
    one.step()
    assert one.next_epoch(70) == 71
    assert one.next_epoch(71) == 72
    with pytest.raises(NotLeading, match="a lease ends at"):
        one.next_epoch(2**31)


def test_a_write_whose_answer_was_lost_is_known_for_ones_own() -> None:
    world = World()
    (one,) = candidates(world, 1)
    one.step()
    held = world.record

    def lost() -> None:
        raise LeaseUnavailable("the answer was lost")

    world.meanwhile = [lost, lambda: None]
    with pytest.raises(NotLeading):
        one.next_epoch(0)
    assert held is not None and world.record is not None
    assert world.record.epoch == held.epoch + 1
    one.step()
    one.step()
    assert _leads(one)
    assert one.next_epoch(0) == held.epoch + 2


@given(st.data())
def test_no_two_ever_have_one_epoch_and_a_later_leader_fences_off_an_older(
    data: st.DataObject,
) -> None:
    world = World()
    found = candidates(world, 3)

    def act(depth: int = 0) -> None:
        """One candidate does something; within its calls of the record others may act."""
        who = found[data.draw(st.integers(0, 2))]
        if who in busy:
            return
        if depth < 3:
            world.meanwhile = [lambda: act(depth + 1)] * data.draw(st.integers(0, 3))
        busy.append(who)
        what = data.draw(
            st.sampled_from(["step", "step", "lead", "time", "lose", "leave", "give up"])
        )
        if what == "time":
            world.now += data.draw(st.sampled_from([0.5, RENEW_DEADLINE_S, DURATION_S]))
        elif what == "step":
            who.step()
        elif what == "leave":
            _try(who.give_back)
        elif what == "give up":
            who.give_up("it can do nothing")
        elif what == "lead":
            _try(lambda: take_over(who))
        else:
            world.meanwhile.append(_lose)
        busy.remove(who)

    def take_over(who: Candidate) -> None:
        epoch = who.next_epoch(world.fence)
        assert epoch not in world.raised
        act(2)  # it stands still before it raises the fence
        if epoch >= world.fence:
            world.fence = epoch
            world.raised.append(epoch)

    busy: list[Candidate] = []
    for _ in range(data.draw(st.integers(1, 25))):
        act()
    world.meanwhile.clear()
    assert world.raised == sorted(set(world.raised))
    later(world, found, 2 * DURATION_S)
    assert len(leaders(found)) == 1
    leader = found[leaders(found)[0]]
    assert leader.next_epoch(world.fence) > max(world.raised, default=0)


def _lose() -> None:
    raise LeaseUnavailable("the answer was lost")


def _try(act: Callable[[], None]) -> None:
    with contextlib.suppress(NotLeading, LeaseUnavailable, LeaseConflict):
        act()
