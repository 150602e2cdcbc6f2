"""Candidates for the lead over one record: pauses anywhere, lost answers, clocks of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.file_lease import FileLease
from mqstore.storage.replication.election import (
    Addresses,
    Candidate,
    ElectionError,
    Lease,
    LeaseConflict,
    LeaseUnavailable,
    Margins,
    NotLeading,
)

MARGINS = Margins(duration_s=8.0, renewal_deadline_s=5.0, retry_s=1.0)


@dataclass
class World:
    """A record, with the failures of its calls."""

    now: float = 0.0
    record: Lease | None = None
    writes: int = 0
    epochs: list[int] = field(default_factory=list)
    """Epochs of the leaders, in the order in which they took the record."""
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
        held = self.world.record
        if lease.version != ("" if held is None else held.version):
            raise LeaseConflict("it was written")
        if held is None or lease.epoch != held.epoch:
            self.world.epochs.append(lease.epoch)
        self.world.writes += 1
        self.world.record = replace(lease, version=str(self.world.writes))
        self.world.pause()
        return self.world.record


def is_member(name: str, lease: Lease | None) -> str | None:
    if lease is None or name in lease.in_sync:
        return None
    return "not in sync"


def candidates(world: World, count: int) -> list[Candidate]:
    """Each with a clock of its own, far from the others', and all in sync."""
    names = tuple(f"c{n}" for n in range(count))
    world.record = Lease("", 0, in_sync=names, version="0")
    return [
        Candidate(
            *(Record(world), name, Addresses(f"http://{name}"), partial(is_member, name), MARGINS),
            partial(_clock, world, 1e6 * n),
        )
        for n, name in enumerate(names)
    ]


def _clock(world: World, ahead_s: float) -> float:
    return world.now + ahead_s


def leaders(found: list[Candidate]) -> list[int]:
    return [n for n, each in enumerate(found) if each.leads]


def later(world: World, found: list[Candidate], seconds: float) -> None:
    """Let every candidate run for so long."""
    end = world.now + seconds
    while world.now < end:
        for each in found:
            each.step()
        world.now += MARGINS.retry_s


def test_the_first_one_leads_and_goes_on_leading() -> None:
    world = World()
    one, two = found = candidates(world, 2)
    later(world, found, 10 * MARGINS.duration_s)
    assert leaders(found) == [0]
    assert two.lease is not None
    assert (one.epoch, two.lease.addresses.url, world.epochs) == (1, "http://c0", [1])
    with pytest.raises(NotLeading, match="c0 leads"):
        _ = two.epoch


def test_another_one_takes_over_in_time_and_the_first_has_stopped_before() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    two.step()
    began = world.now
    while not two.leads:
        world.now += MARGINS.retry_s
        two.step()
        assert not (one.leads and two.leads)
    assert MARGINS.renewal_deadline_s < world.now - began <= MARGINS.duration_s + MARGINS.retry_s
    one.step()
    assert not one.leads
    assert two.epoch == 2
    assert two.lease is not None and two.lease.in_sync == ("c1",)


def test_a_candidate_waits_no_longer_than_until_the_lease_expires() -> None:
    world = World()
    one, two = candidates(world, 2)
    one.step()
    pause_s = two.step()
    while not two.leads:
        world.now += pause_s
        pause_s = two.step()
    assert world.now < MARGINS.duration_s + MARGINS.retry_s / 10


def test_a_released_lease_is_taken_at_once_and_by_the_successor_if_one_is_named() -> None:
    world = World()
    one, two, three = found = candidates(world, 3)
    for each in found:
        each.step()
    one.name_successor("c2")
    assert three.step() < MARGINS.retry_s / 10
    one.release()
    assert not one.leads
    two.step()
    assert (two.leads, two.trouble) == (False, "the lease is kept for c2")
    three.step()
    assert leaders(found) == [2]
    assert three.lease is not None
    assert (three.lease.in_sync, three.lease.successor) == (("c1", "c2"), "")


def test_a_leader_that_is_stopped_leads_again_where_all_others_are_dead() -> None:
    world = World()
    one, two, _ = candidates(world, 3)
    one.step()
    one.release()
    assert published(world) == ("c0", "c1", "c2")
    one.step()
    assert (one.leads, one.epoch, published(world)) == (True, 2, ("c0", "c1", "c2"))
    one.release()
    two.step()
    assert (two.leads, published(world)) == (True, ("c1", "c2"))
    one.step()
    assert (one.leads, world.record is not None and world.record.former) == (False, "")


def test_a_successor_that_does_not_come_is_replaced() -> None:
    world = World()
    one, two, _ = found = candidates(world, 3)
    one.step()
    one.name_successor("c2")
    one.release()
    later(world, [two], MARGINS.duration_s + 2 * MARGINS.retry_s)
    assert leaders(found) == [1]


def test_only_a_member_of_the_set_takes_the_lease() -> None:
    world = World()
    one, two, three = found = candidates(world, 3)
    one.step()
    one.publish(["c2"])
    later(world, [two], 3 * MARGINS.duration_s)
    assert (leaders(found), two.trouble) == ([], "not in sync")
    three.step()
    later(world, [two, three], 2 * MARGINS.duration_s)
    assert leaders(found) == [2]


def published(world: World) -> tuple[str, ...]:
    assert world.record is not None
    return world.record.in_sync


def test_a_set_is_published_only_by_the_leader_and_only_once_it_is_written() -> None:
    world = World()
    one, two, _ = candidates(world, 3)
    with pytest.raises(NotLeading):
        one.publish(["c1"])
    one.step()
    world.meanwhile = [_lose]
    with pytest.raises(LeaseUnavailable):
        one.publish(["c1"])
    assert published(world) == ("c0", "c1", "c2")
    one.publish(["c1"])
    assert published(world) == ("c0", "c1")
    world.now += MARGINS.duration_s
    two.step()
    world.now += MARGINS.duration_s
    two.step()
    with pytest.raises(ElectionError):
        one.publish([])


def test_a_process_of_the_same_name_takes_its_lease_again_in_a_new_epoch() -> None:
    world = World()
    one, _ = candidates(world, 2)
    one.step()
    held = world.record
    again = candidates(world, 2)[0]
    world.record = held
    again.step()
    assert again.epoch == 2
    assert again.lease is not None and again.lease.in_sync == ("c0", "c1")
    assert not one.leads_in(2)
    one.step()
    assert not one.leads_in(1)


def test_a_renewal_whose_answer_was_lost_does_not_end_the_lead() -> None:
    world = World()
    (one,) = candidates(world, 1)
    one.step()
    world.meanwhile = [_lose, lambda: None]  # after the write took effect
    one.step()
    assert one.trouble == "the answer was lost"
    assert one.leads
    world.now += MARGINS.retry_s
    one.step()
    assert not one.trouble
    assert (one.epoch, world.epochs) == (1, [1])


@pytest.mark.parametrize(
    "margins", [(6.0, 5.0, 1.0), (6.0, 6.0, 1.0), (6.0, 4.0, 2.0), (6.0, 4.0, 6.0)]
)
def test_margins_that_are_not_safe_are_refused(margins: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="at most"):
        Margins(*margins)


@given(st.data())
def test_no_two_lead_at_one_time_and_epochs_only_grow(data: st.DataObject) -> None:
    world = World()
    found = candidates(world, 3)

    def act(depth: int = 0) -> None:
        """One candidate does something; within its calls of the record others may act."""
        assert len(leaders(found)) <= 1
        who = found[data.draw(st.integers(0, 2))]
        if who in busy:
            return
        if depth < 3:
            world.meanwhile = [lambda: act(depth + 1)] * data.draw(st.integers(0, 3))
        busy.append(who)
        what = data.draw(st.sampled_from(["step", "step", "time", "lose", "leave", "publish"]))
        if what == "time":
            world.now += data.draw(
                st.sampled_from([0.5, MARGINS.renewal_deadline_s, MARGINS.duration_s])
            )
        elif what == "step":
            who.step()
        elif what == "leave":
            _try(who.release)
        elif what == "publish":
            _try(lambda: who.publish(data.draw(st.sets(st.sampled_from(["c0", "c1", "c2"])))))
        else:
            world.meanwhile.append(_lose)
        busy.remove(who)

    busy: list[Candidate] = []
    for _ in range(data.draw(st.integers(1, 25))):
        act()
    world.meanwhile.clear()
    assert world.epochs == sorted(set(world.epochs))
    later(world, found, 3 * MARGINS.duration_s)
    assert len(leaders(found)) == 1
    assert found[leaders(found)[0]].epoch == max(world.epochs)


def test_a_lease_in_a_directory_is_written_only_as_it_was_read(tmp_path: Path) -> None:
    store = FileLease(tmp_path / "lease")
    assert store.read() is None
    addresses = Addresses("http://one", "one:1")
    made = store.write(Lease("one", 1, addresses, ("one", "two"), "two"))
    assert store.read() == made
    taken = store.write(replace(made, holder="two"))
    with pytest.raises(LeaseConflict):
        store.write(replace(made, holder="three"))
    assert FileLease(tmp_path / "lease").read() == taken
    (tmp_path / "lease" / "3").write_text("?")
    with pytest.raises(LeaseUnavailable):
        store.read()


def _lose() -> None:
    raise LeaseUnavailable("the answer was lost")


def _try(act: Callable[[], None]) -> None:
    with contextlib.suppress(ElectionError):
        act()
