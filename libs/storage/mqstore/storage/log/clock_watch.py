"""Detects steps of the wall clock by comparing it with the monotonic clock.

Both are slewed alike, so their difference changes only where the wall clock is set (or the machine
was suspended, which is like a clock set forward). A put that finds the wall clock far from its last
value has it checked before its message is stamped, so that a step is recorded, durably, at the very
offset where times change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mqstore.storage._kernel import LogEnd
from mqstore.storage.metadata.clock_steps import (
    CLOCK_STEP_MS,
    NO_STEPS,
    ClockStep,
    ClockSteps,
    StepsView,
)
from mqstore.storage.seams import Clock

CHECK_INTERVAL_S: Final = 1.0
"""Interval between checks of the clocks while nothing is put."""
_TRIES: Final = 10
_APART_S: Final = 0.05
"""Two readings further apart are discarded: the process was stopped between them."""

_log = logging.getLogger(__name__)


class ClockWatch:
    """Records clock steps. For one thread at a time: the holder of the put lock."""

    def __init__(
        self,
        steps: ClockSteps,
        clock: Clock,
        boot_id: str,
        kept_from: Callable[[int], int] = lambda minimum: minimum,
    ) -> None:
        """``kept_from`` returns, for a minimum of the log, the physical offset below which steps
        may be forgotten."""
        self.steps = steps
        self.seen = 0
        """Number of steps recorded since the opening, and by it."""
        self.last: ClockStep | None = None
        """The last of these steps."""
        self.last_seen: float = 0.0
        """Monotonic time at which the last step was recorded."""
        self.checked_at: float = 0.0
        """Monotonic time of the last check."""
        self._listeners: list[Callable[[int], None]] = []
        self._kept_from = kept_from
        self._clock = clock
        self._boot_id = boot_id
        self._base_ms = 0
        """Difference of the wall clock and the monotonic clock at the last recorded step, or at the
        first check of this boot; small steps add up from there."""

    def add_listener(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the time after the clock was set back, before the next put."""
        self._listeners.append(listener)

    def begin(self, bounds: tuple[int, int], newest_ms: int) -> int:
        """At an opening: record a step of the clock since the last message was stored.

        ``bounds`` are the log's; ``newest_ms`` is the STORETIMESTAMP of its newest record, 0
        without one. Returns the lower bound for the times of later records.
        """
        bounds = self._kept_from(bounds[0]), bounds[1]
        now_ms, base_ms = self._read_clocks() or (self._clock.now_ms(), self._base())
        before = self.steps.base_of(self._boot_id)
        step_ms = 0 if before is None else base_ms - before
        is_step = abs(step_ms) > CLOCK_STEP_MS
        self._base_ms = base_ms if before is None or is_step else before
        self.steps.change(self._boot_id, self._base_ms, None, bounds=bounds)
        if is_step:
            self._note(step_ms, now_ms, newest_ms, bounds, is_measured=True)
        # A step before this boot, under a broker or an older release: the newest record shows it.
        at = max(0, bounds[1] - 1)
        ahead_ms = newest_ms + self.steps.view.shift_ms(at) - now_ms
        if newest_ms and ahead_ms > CLOCK_STEP_MS:
            self._note(-ahead_ms, now_ms, newest_ms, bounds, is_measured=False)
        return newest_ms if newest_ms - now_ms <= CLOCK_STEP_MS else now_ms

    def check(self, end: LogEnd, min_offset: int) -> None:
        """Record a step, if there was one; later records get timestamps after it."""
        found = self._read_clocks()
        if found is None:
            return
        now_ms, base_ms = found
        step_ms = base_ms - self._base_ms
        if abs(step_ms) > CLOCK_STEP_MS:
            self._base_ms = base_ms
            newest_ms = end.last_store_timestamp_ms
            if step_ms < 0:
                end.last_store_timestamp_ms = min(newest_ms, now_ms)
            bounds = (self._kept_from(min_offset), end.max_offset)
            self._note(step_ms, now_ms, newest_ms, bounds, is_measured=True)
            if step_ms < 0:
                for listener in self._listeners:
                    listener(now_ms)
            step_ms = 0
        # Small steps add up: the bounds are around what the clock would show without them.
        expected_ms = now_ms - step_ms
        end.clock_low_ms = expected_ms - CLOCK_STEP_MS
        end.clock_high_ms = expected_ms + CLOCK_STEP_MS
        self.steps.save()

    def _note(
        self,
        step_ms: int,
        now_ms: int,
        newest_ms: int,
        bounds: tuple[int, int],
        *,
        is_measured: bool,
    ) -> None:
        step = ClockStep(
            offset=bounds[1],
            step_ms=step_ms,
            clock_ms=now_ms,
            newest_ms=newest_ms,
            is_measured=is_measured,
        )
        self.steps.change(self._boot_id, self._base_ms, step, bounds=bounds)
        self.seen += 1
        self.last, self.last_seen = step, self._clock.monotonic()
        _log.error(
            "the clock was set %s by %.1f s: messages from offset %d on are stamped by it",
            *("back" if step_ms < 0 else "forward", abs(step_ms) / 1000, step.offset),
        )

    def _read_clocks(self) -> tuple[int, int] | None:
        """Read the wall clock and its difference to the monotonic clock, in ms; None when the two
        could not be read together."""
        for _ in range(_TRIES):
            before = self._clock.monotonic()
            now_ms = self._clock.now_ms()
            if self._clock.monotonic() - before <= _APART_S:
                self.checked_at = before
                return now_ms, now_ms - round(before * 1000)
        return None

    def _base(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)


def noted_time(
    clock: Clock, end: LogEnd, watch: ClockWatch | None, check: Callable[[], None]
) -> tuple[int, StepsView]:
    """The present time, and the steps of the clock, the last one included, so that older times can
    be compared with it. ``check`` notes a step; one that cannot be measured now is in neither.
    """
    for _ in range(_TRIES):
        steps, now_ms = NO_STEPS if watch is None else watch.steps.view, clock.now_ms()
        is_noted = end.clock_low_ms <= now_ms <= end.clock_high_ms
        if is_noted and (watch is None or watch.steps.view is steps):
            return now_ms, steps
        check()
    return max(end.clock_low_ms, min(now_ms, end.clock_high_ms)), steps


class ClockService:
    """A ``BackgroundService`` that checks the clocks while nothing is put."""

    name = "clock"

    def __init__(self, check: Callable[[], None]) -> None:
        """``check`` takes the put lock."""
        self._check = check

    def step(self, now: float) -> float:
        """Check the clocks."""
        self._check()
        return now + CHECK_INTERVAL_S
