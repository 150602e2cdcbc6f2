"""A clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EPOCH_MS: Final = 1_700_000_000_000
"""Where a simulation's wall clock begins unless it says otherwise."""


class SimulatedClock:
    """``seams.Clock``: monotonic time only advances, wall time may also be stepped either way."""

    def __init__(self, wall_ms: int = EPOCH_MS) -> None:
        self._offset_ms = wall_ms
        self._monotonic = 0.0
        self.stepped_at = -1.0
        """Monotonic time of the last ``step``."""
        self.starts = 0
        """Of the machine, before this one."""
        self.glance: Callable[[], None] = lambda: None
        """Called at each read of the monotonic time."""

    def copy(self) -> SimulatedClock:
        """A clock that shows the same and goes on by itself."""
        copied = SimulatedClock(self._offset_ms)
        copied._monotonic, copied.stepped_at = self._monotonic, self.stepped_at
        copied.starts = self.starts
        return copied

    @property
    def boot_id(self) -> str:
        """Of the machine's start: another one's monotonic times can be compared with nothing."""
        return f"{self.starts:032x}"

    def now_ms(self) -> int:
        return self._offset_ms + round(self._monotonic * 1000)

    def monotonic(self) -> float:
        self.glance()
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"monotonic time cannot go back by {-seconds} s; use step")
        self._monotonic += seconds

    def advance_to(self, monotonic: float) -> None:
        self._monotonic = max(self._monotonic, monotonic)

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would."""
        self._offset_ms += milliseconds
        self.stepped_at = self._monotonic
