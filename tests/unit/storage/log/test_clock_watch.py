from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage._kernel import LogEnd
from mqstore.storage.log.clock_watch import ClockWatch
from mqstore.storage.metadata.clock_steps import CLOCK_STEP_MS, ClockStep, ClockSteps
from tests.simulation import SimulatedMachine
from tests.simulation.clock import EPOCH_MS

DAY_MS = 86_400_000
END = 5_000
BOUNDS = 0, END


class Watched:
    """A watch over a log that ends at END, on a machine that may be started again."""

    def __init__(self) -> None:
        self.machine = SimulatedMachine(1)
        self.clock = self.machine.clock
        self.end = LogEnd({}, 1 << 20, self.clock)
        self.end.max_offset = END
        self.backs: list[int] = []
        self.watch = self.opened()

    def opened(self, newest_ms: int = 0, boot: str = "1") -> ClockWatch:
        steps = ClockSteps(self.machine.disk, Path("/clock.json"), writable=True)
        self.watch = ClockWatch(steps, self.clock, boot)
        self.watch.add_listener(self.backs.append)
        self.end.last_store_timestamp_ms = self.watch.begin(BOUNDS, newest_ms)
        return self.watch

    def look(self) -> tuple[ClockStep, ...]:
        self.watch.check(self.end, 0)
        return self.watch.steps.view.steps


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, CLOCK_STEP_MS + 1, -CLOCK_STEP_MS - 1])
def test_a_step_is_noted_where_the_log_ends(step_ms: int) -> None:
    watched = Watched()
    watched.end.last_store_timestamp_ms = EPOCH_MS
    watched.clock.advance(30)
    watched.clock.step(step_ms)
    now_ms = watched.clock.now_ms()

    [step] = watched.look()

    assert step == ClockStep(
        offset=END, step_ms=step_ms, clock_ms=now_ms, newest_ms=EPOCH_MS, is_measured=True
    )
    assert watched.watch.seen == 1
    assert watched.watch.last == step
    assert watched.end.last_store_timestamp_ms == min(EPOCH_MS, now_ms)
    assert watched.backs == ([now_ms] if step_ms < 0 else [])
    assert watched.look() == (step,)


def test_time_that_passes_is_no_step() -> None:
    watched = Watched()
    watched.clock.advance(90 * 86_400)
    assert watched.look() == ()


def test_small_steps_are_none_until_they_add_up() -> None:
    watched = Watched()
    for _ in range(3):
        watched.clock.step(-20_000)
        assert watched.look() == ()
    watched.opened()
    watched.clock.step(-20_000)
    assert [each.step_ms for each in watched.look()] == [-80_000]


def test_who_puts_looks_again_once_the_clock_is_far_from_where_it_was_seen() -> None:
    watched = Watched()
    watched.look()
    now_ms = watched.clock.now_ms()
    end = watched.end
    assert (end.clock_low_ms, end.clock_high_ms) == (
        now_ms - CLOCK_STEP_MS,
        now_ms + CLOCK_STEP_MS,
    )


def test_clocks_that_were_read_apart_say_nothing() -> None:
    """The process was suspended between the two readings."""
    watched = Watched()
    watched.clock.glance = lambda: watched.clock.advance(300)
    assert watched.look() == ()


def test_a_step_while_no_process_ran_is_noted_by_the_opening() -> None:
    watched = Watched()
    newest_ms = watched.clock.now_ms()
    watched.clock.advance(3_600)
    watched.clock.step(DAY_MS)
    [step] = watched.opened(newest_ms).steps.view.steps
    assert (step.step_ms, step.is_measured) == (DAY_MS, True)
    assert watched.opened(newest_ms).seen == 0


def test_after_a_reboot_only_a_newest_message_of_the_future_proves_a_step() -> None:
    watched = Watched()
    watched.clock.advance(3_600)
    watched.clock.step(DAY_MS)
    assert watched.opened(EPOCH_MS, boot="2").steps.view.steps == ()
    newest_ms = watched.clock.now_ms() + DAY_MS
    [step] = watched.opened(newest_ms, boot="3").steps.view.steps
    assert (step.step_ms, step.is_measured, step.newest_ms) == (-DAY_MS, False, newest_ms)
    assert watched.end.last_store_timestamp_ms == watched.clock.now_ms()
    watched.clock.advance(60)
    assert watched.opened(newest_ms, boot="4").seen == 0


def test_a_newest_message_a_little_ahead_is_waited_for() -> None:
    watched = Watched()
    newest_ms = watched.clock.now_ms() + CLOCK_STEP_MS
    assert watched.opened(newest_ms).steps.view.steps == ()
    assert watched.end.last_store_timestamp_ms == newest_ms
