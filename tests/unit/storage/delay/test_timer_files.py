"""The bytes are of files that a broker of 5.4.0 wrote; docs/formats.md has them."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.java_text import string_hash
from mqstore.storage.delay import timer_files
from mqstore.storage.delay.timer_files import (
    NOWHERE,
    UNIT_SIZE,
    TimerCheckpoint,
    TimerLog,
    TimerWheel,
    Unit,
    decode_unit,
)
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedMachine
from tests.simulation.timed_store import small_wheel

wheel_sizes = pytest.fixture(autouse=True)(small_wheel)

INT64 = st.integers(0, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
UNITS = st.builds(
    Unit,
    st.integers(-1, 2**62),
    st.integers(1, 7),
    st.integers(0, 2**60),
    INT32,
    INT64,
    INT32,
    st.integers(-(2**31), 2**31 - 1),
)
PATHS = StorePaths(Path("/store"))


@given(UNITS)
def test_a_unit_is_what_its_bytes_say(unit: Unit) -> None:
    assert decode_unit(memoryview(unit.encode()), 0) == unit


@given(st.tuples(*[INT64] * 7))
def test_a_checkpoint_is_what_its_bytes_say(values: tuple[int, ...]) -> None:
    found = TimerCheckpoint(*values)
    assert TimerCheckpoint.decode(found.encode()) == found
    assert len(found.encode()) == 4096


@given(st.lists(UNITS, min_size=1, max_size=40), st.integers(0, 40))
def test_units_are_read_as_they_were_appended_up_to_a_cut(units: list[Unit], kept: int) -> None:
    machine = SimulatedMachine(1)
    log = TimerLog(PATHS, machine.seams)
    positions = [log.append(each) for each in units]
    assert [log.unit(each) for each in positions] == units
    assert list(TimerLog(PATHS, machine.seams).units()) == list(zip(positions, units, strict=True))
    again = TimerLog(PATHS, machine.seams)
    again.cut([0, *(each + UNIT_SIZE for each in positions)][min(kept, len(units))])
    positions[kept:] = [again.append(each) for each in units[kept:]]
    assert list(again.units()) == list(zip(positions, units, strict=True))
    assert list(TimerLog(PATHS, machine.seams).units()) == list(zip(positions, units, strict=True))


@given(st.lists(st.integers(1_000, 1_255), max_size=30), st.integers(1_000, 1_255))
def test_a_wheel_finds_the_next_slot_with_units(seconds: list[int], start: int) -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(PATHS.root)
    wheel = TimerWheel(PATHS, machine.seams)
    for position, second in enumerate(seconds):
        wheel.add(second * 1_000, position)
    for second in range(1_000, 1_256):
        last = max((at for at, each in enumerate(seconds) if each == second), default=NOWHERE)
        assert wheel.last(second * 1_000) == last
    expected = min((each * 1_000 for each in seconds if each >= start), default=None)
    assert wheel.next_used(start * 1_000, 1_256_000) == expected


@given(
    st.lists(st.tuples(st.integers(1_000, 1_005), st.integers(0, 2), st.booleans()), max_size=30),
    st.randoms(use_true_random=False),
)
def test_seconds_of_several_turns_are_all_kept(
    units: list[tuple[int, int, bool]], rng: Random
) -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(PATHS.root)
    wheel = TimerWheel(PATHS, machine.seams)
    expected: dict[int, int] = {}
    for position, (second, turn, is_first_cleared) in enumerate(units):
        if expected and is_first_cleared:
            cleared = rng.choice(sorted(expected))
            wheel.clear(cleared)
            del expected[cleared]
        wheel.add((second + 256 * turn) * 1_000, position)
        expected[(second + 256 * turn) * 1_000] = position
    for slot_ms in range(1_000_000, 2_000_000, 1_000):
        assert wheel.last(slot_ms) == expected.get(slot_ms, NOWHERE)
    assert wheel.first_used() == min(expected, default=None)


def test_a_brokers_bytes_are_read_and_written() -> None:
    given = bytes.fromhex(
        "00000034ffffffffffffffff00000001000001a21aecf6b800000bb8"
        "000000000000014e0000014ec3df62e50000000000000000"
    )
    unit = decode_unit(memoryview(given), 0)
    assert unit == Unit(-1, 1, 1795748067000, 3000, 334, 334, string_hash("orders"))
    assert unit.slot_ms == 1795748070000
    assert unit.encode() == given
    check = bytes.fromhex(
        "000001a21aed065800000000000001040000000000000005"
        "00000000000000050000000000000000000001a21aed06d00000000000000003"
    )
    found = TimerCheckpoint(1795748071000, 260, 5, 5, 0, 1795748071120, 3)
    assert TimerCheckpoint.decode(check) == found
    assert found.encode() == check.ljust(4096, b"\0")


def test_a_slot_has_the_bytes_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_files, "WHEEL_SLOTS", 2 * 7 * 86_400)
    machine = SimulatedMachine(1)
    machine.disk.make_directories(PATHS.root)
    wheel = TimerWheel(PATHS, machine.seams)
    wheel.add(0x6B08F0E6 * 1_000, 0x34)
    wheel.publish()
    content = machine.disk.read(PATHS.timer_wheel)
    assert len(content) == 38_707_200
    slot = content[701_670 * 32 : 701_671 * 32]
    assert slot.hex() == "000000006b08f0e6000000000000003400000000000000340000000100000000"


def test_a_wheel_takes_the_room_of_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening made a second file of 38.7 MB, for which a small disk had no room."""
    monkeypatch.setattr(timer_files, "WHEEL_SLOTS", 2 * 7 * 86_400)
    paths, seams = StorePaths(tmp_path), production_seams()
    wheel = TimerWheel(paths, seams)
    for second in range(0, 10_000, 1_000):
        wheel.add(second * 1_000, second)
    wheel.publish()
    wheel.add(20_000_000, 7)
    wheel.flush()
    wheel.close()
    stat = paths.timer_wheel.stat()
    assert stat.st_size == 38_707_200
    assert stat.st_blocks * 512 <= 16 * 4096  # of the slots, and of the file system


def test_a_slot_without_room_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimulatedMachine(1)
    machine.disk.make_directories(PATHS.root)
    wheel = TimerWheel(PATHS, machine.seams)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(machine.disk, "reserve", refuse)
    with pytest.raises(OSError, match="no room"):
        wheel.add(1_000_000, 3)
    monkeypatch.undo()
    assert wheel.last(1_000_000) == NOWHERE
    wheel.add(1_000_000, 3)
    assert wheel.last(1_000_000) == 3
