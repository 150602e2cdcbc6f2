from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mqstore.storage.metadata import clock_steps
from mqstore.storage.metadata.clock_steps import STEPS_MAX, ClockStep, ClockSteps, StepsView
from tests.simulation import SimulatedDisk, SimulatedMachine

PATH = Path("/clock.json")
BOOT = "boot"
ALL = (0, 10**9)


def step(offset: int, step_ms: int, newest_ms: int = 1) -> ClockStep:
    return ClockStep(
        offset=offset, step_ms=step_ms, clock_ms=0, newest_ms=newest_ms, is_measured=True
    )


def steps_on(disk: SimulatedDisk, *, writable: bool = True) -> ClockSteps:
    return ClockSteps(disk, PATH, writable=writable)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedMachine(1).disk


def test_a_time_is_shifted_by_all_steps_that_came_after_it() -> None:
    view = StepsView((step(100, 1_000, 7), step(200, -900, 9), step(200, -50, 3)))
    shifts = {offset: view.shift_ms(offset) for offset in (0, 99, 100, 199, 200, 10**9)}
    assert shifts == {0: 50, 99: 50, 100: -950, 199: -950, 200: 0, 10**9: 0}
    assert view.back_offsets == (200,)
    assert view.newest_ms == 9


def test_without_steps_nothing_is_shifted() -> None:
    assert StepsView().shift_ms(5) == 0
    assert StepsView().back_offsets == ()
    assert StepsView().newest_ms == 0


def test_what_is_noted_survives_a_power_cut(disk: SimulatedDisk) -> None:
    steps_on(disk).change(BOOT, 5, step(100, 1_000), bounds=ALL)
    again = steps_on(disk.power_cut(1))
    assert again.view.steps == (step(100, 1_000),)
    assert again.base_of(BOOT) == 5
    assert again.base_of("another") is None


def test_steps_below_the_log_are_forgotten_and_those_beyond_it_move_to_its_end(
    disk: SimulatedDisk,
) -> None:
    steps = steps_on(disk)
    for offset in (100, 200, 300):
        steps.change(BOOT, 5, step(offset, 1_000), bounds=ALL)
    steps.change(BOOT, 5, None, bounds=(100, 250))
    assert [each.offset for each in steps_on(disk).view.steps] == [200, 250]


def test_a_clock_that_is_set_all_the_time_fills_no_disk(disk: SimulatedDisk) -> None:
    steps = steps_on(disk)
    for number in range(STEPS_MAX + 5):
        steps.change(BOOT, number, step(number + 1, 1_000), bounds=ALL)
    assert [each.offset for each in steps.view.steps] == list(range(6, STEPS_MAX + 6))


def test_a_file_that_cannot_be_read_counts_as_none(disk: SimulatedDisk) -> None:
    disk.write(PATH, b"{")
    assert steps_on(disk).view.steps == ()
    with pytest.raises(ValueError, match="JSON"):
        clock_steps.read(disk, PATH)


def test_what_a_disk_refuses_is_known_and_saved_later(disk: SimulatedDisk) -> None:
    steps = steps_on(disk)
    disk.fail_next("write", errno.ENOSPC)
    steps.change(BOOT, 5, step(100, 1_000), bounds=ALL)
    known = [(steps.is_saved, steps.view.shift_ms(0))]
    steps.save()
    known += [(steps.is_saved, steps.view.shift_ms(0))]
    assert known == [(False, 1_000), (True, 1_000)]
    assert steps_on(disk).view.steps == (step(100, 1_000),)


def test_who_only_reads_writes_nothing(disk: SimulatedDisk) -> None:
    steps_on(disk, writable=False).change(BOOT, 5, step(100, 1_000), bounds=ALL)
    assert disk.stat(PATH) is None
