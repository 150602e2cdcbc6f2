"""A clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EPOCH_MS: Final = 1_700_000_000_000
"""Start of a simulation's wall clock, by default."""


class SimulatedClock:
    """``seams.Clock``: monotonic time only advances, wall time may also be stepped either way."""

    def __init__(self, wall_ms: int = EPOCH_MS) -> None:
        self._offset_ms = wall_ms
        self._monotonic = 0.0
        self.stepped_at = -1.0
        """Monotonic time of the last ``step``."""
        self.starts = 0
        """Number of starts of the machine before this one."""
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
        """Boot id of the machine: monotonic times of different boots cannot be compared."""
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
