from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.errors import PinRefused, PinUnknown
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.pins import PINS_MAX, Pin, Pins
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedClock

NOW_MS = 1_700_000_000_000


class Machine:
    def __init__(self, root: Path) -> None:
        self.paths = StorePaths(root)
        self.clock = SimulatedClock(NOW_MS)
        self.seams = replace(production_seams(), clock=self.clock)
        self.seams.files.make_directories(self.paths.quarantine)
        self.pins = self.load()

    def load(self) -> Pins:
        return Pins(self.paths, self.seams)

    def put(self, name: str = "job", start: int = 100, *, lease_s: int = 60) -> Pin:
        return self.pins.put(name, start, None, lease_s=lease_s, why="a test", min_offset=100)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_pin_outlives_the_process(machine: Machine) -> None:
    pin = machine.put()
    assert machine.load().live() == [pin]
    assert (pin.created_ms, pin.expires_ms) == (NOW_MS, NOW_MS + 60_000)


def test_a_pin_without_a_heartbeat_expires(machine: Machine) -> None:
    machine.put()
    machine.clock.advance(59.999)
    assert [pin.name for pin in machine.pins.live()] == ["job"]
    machine.clock.advance(0.001)
    assert machine.pins.live() == machine.load().live() == []
    with pytest.raises(PinUnknown):
        machine.pins.get("job")


def test_a_heartbeat_lengthens_the_lease_and_may_move_the_range(machine: Machine) -> None:
    machine.put()
    machine.clock.advance(50)
    again = machine.put(start=500)
    assert (again.created_ms, again.expires_ms) == (NOW_MS, NOW_MS + 110_000)
    assert machine.pins.get("job").from_offset == 500


def test_what_is_not_there_any_more_cannot_be_pinned(machine: Machine) -> None:
    with pytest.raises(PinRefused, match="begins at 100"):
        machine.put(start=99)


@pytest.mark.parametrize("name", ["", "a b", "../x", "-a", "x" * 101, "ä"])
def test_a_name_that_is_none_is_refused(machine: Machine, name: str) -> None:
    with pytest.raises(PinRefused, match="no name"):
        machine.put(name)


def test_an_empty_range_is_refused(machine: Machine) -> None:
    with pytest.raises(PinRefused, match="empty"):
        machine.pins.put("job", 200, 200, lease_s=1, why="", min_offset=0)


def test_there_are_so_many_pins_at_most_and_those_that_ended_do_not_count(machine: Machine) -> None:
    for number in range(PINS_MAX):
        machine.put(f"job{number}")
    machine.put("job0")
    with pytest.raises(PinRefused, match="already"):
        machine.put("more")
    machine.clock.advance(60)
    assert machine.put("more").name == "more"


def test_a_pin_that_is_ended_is_gone(machine: Machine) -> None:
    machine.put("a")
    machine.put("b")
    machine.pins.remove("a")
    assert [pin.name for pin in machine.load().live()] == ["b"]
    with pytest.raises(PinUnknown):
        machine.pins.remove("a")


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"pins": 7}'])
def test_a_file_that_cannot_be_read_is_set_aside(machine: Machine, damage: bytes) -> None:
    machine.put()
    machine.paths.pins.write_bytes(damage)
    assert machine.load().live() == []
    assert not machine.paths.pins.exists()
    assert [entry.name for entry in machine.paths.quarantine.iterdir()]


def test_a_flipped_bit_is_noticed(machine: Machine) -> None:
    machine.put(start=256)
    content = machine.paths.pins.read_bytes()
    machine.paths.pins.write_bytes(content.replace(b'"fromOffset":256', b'"fromOffset":257'))
    assert machine.load().live() == []
