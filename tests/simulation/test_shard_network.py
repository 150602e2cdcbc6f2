"""The network between the replicas of a simulated shard, and their clocks."""

from __future__ import annotations

import pytest

from tests.simulation.shard.events import Events, Machine, Process, Spinning
from tests.simulation.shard.network import End, Network

PORT = 1
NUMBERS = list(range(200))


class Pair:
    """A connection from ``a`` to ``b``, and what arrived at ``b``."""

    def __init__(self, seed: int) -> None:
        self.events = Events(seed)
        self.network = Network(self.events)
        self.network.slow_chance = 0.3
        self.near, self.far = (Process(Machine(self.events, name)) for name in "ab")
        self.received: list[object] = []
        self.lost: list[str] = []
        self.ends: list[End] = []
        self.network.listen(self.far, PORT, self._accept)
        self.network.connect(self.near, ("b", PORT), self._open, lambda: self.lost.append("near"))
        self.events.run_until(2)

    def _accept(self, end: End) -> None:
        end.on_receive = self.received.append
        end.on_lost = lambda: self.lost.append("far")

    def _open(self, end: End) -> None:
        end.on_lost = lambda: self.lost.append("near")
        self.ends.append(end)

    def send_all(self) -> None:
        for each in NUMBERS:
            self.ends[-1].send(each)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_on_a_connection_comes_in_order(seed: int) -> None:
    pair = Pair(seed)
    pair.send_all()
    pair.events.run_until(100)
    assert pair.received == NUMBERS


def test_a_partition_holds_what_is_sent_until_it_heals() -> None:
    pair = Pair(1)
    pair.network.block("a", "b")
    pair.send_all()
    pair.events.run_until(100)
    assert pair.received == []
    pair.network.heal()
    pair.events.run_until(200)
    assert pair.received == NUMBERS


def test_a_killed_process_closes_its_connections_and_a_machine_without_power_does_not() -> None:
    for silent in (False, True):
        pair = Pair(2)
        pair.network.end_process(pair.far, silent=silent)
        pair.far.alive = False
        pair.events.run_until(100)
        assert pair.lost == ([] if silent else ["near"])


def test_a_stopped_process_goes_on_with_what_came_meanwhile_in_its_order() -> None:
    pair = Pair(3)
    pair.far.stop(50)
    pair.send_all()
    pair.events.run_until(40)
    pair.far.stop(50)
    pair.events.run_until(60)
    assert pair.received == []
    pair.events.run_until(100)
    assert pair.received == NUMBERS


def test_a_broken_connection_is_known_at_both_ends() -> None:
    pair = Pair(4)
    pair.network.break_between("a", "b")
    pair.events.run_until(100)
    assert sorted(pair.lost) == ["far", "near"]


def test_a_machine_has_a_clock_of_its_own() -> None:
    events = Events(1)
    process = Process(Machine(events, "a", rate=2.0))
    found: list[float] = []
    process.after(10, lambda: found.append(events.now))
    events.run_until(7)
    assert (found, process.monotonic()) == ([5.0], 14.0)


def test_a_schedule_that_spins_is_ended() -> None:
    events = Events(1)

    def spin() -> None:
        events.after(0, spin)

    spin()
    with pytest.raises(Spinning):
        events.run_until(1)
