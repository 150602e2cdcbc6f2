"""Steps of the wall clock while messages were stored (``store/mqstore/clock.json``).

STORETIMESTAMP follows the clock over a step, as in RocketMQ. A step divides the log at a physical
offset: records below were stored before it. So an old time can be compared with the present clock,
and a search by time knows where times go back. The file is sealed by a checksum and also holds the
last comparison of the two clocks.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.seams import FileSystem

CLOCK_STEP_MS: Final = 60_000
"""Smaller steps are ignored:

STORETIMESTAMP waits for a clock that was set back by less, and is wrong by less after one that was
set forward. NTP makes larger steps only of clocks that were wrong.
"""
STEPS_MAX: Final = 1_000
"""Maximum number of kept steps; the oldest are forgotten."""

_log = logging.getLogger(__name__)


class ClockStep(Value):
    """One step of the clock; times are milliseconds since the epoch."""

    offset: Annotated[int, Field(ge=0)]
    """Physical offset; messages below were stored before the step."""
    step_ms: int
    """Size of the step; below 0 the clock was set back."""
    clock_ms: int
    """Time that the clock showed after the step."""
    newest_ms: int
    """The newest STORETIMESTAMP before the step."""
    is_measured: bool
    """False: known only from the newest message, after the machine started."""


class _File(Value):
    boot_id: str = ""
    base_ms: int = 0
    """Difference of the wall clock and the monotonic clock, which counts from the machine's
    start."""
    steps: tuple[ClockStep, ...] = ()


class StepsView:
    """Some steps, oldest first. Immutable."""

    def __init__(self, steps: tuple[ClockStep, ...] = ()) -> None:
        self.steps = steps
        self._offsets = [step.offset for step in steps]
        later = accumulate((step.step_ms for step in reversed(steps)), initial=0)
        self._shifts = list(later)[::-1]
        self.back_offsets: tuple[int, ...] = tuple(
            sorted({step.offset for step in steps if step.step_ms < 0})
        )
        """Physical offsets at which STORETIMESTAMP may be less than before."""

    def shift_ms(self, offset: int) -> int:
        """Milliseconds to add to a time read when the record at a physical offset was stored, to
        compare it with the present clock."""
        return self._shifts[bisect_right(self._offsets, offset)] if self.steps else 0

    @property
    def newest_ms(self) -> int:
        """The latest STORETIMESTAMP that a record from before any step may have; 0 without one."""
        return max((step.newest_ms for step in self.steps), default=0)


NO_STEPS: Final = StepsView()


def read(files: FileSystem, path: Path) -> StepsView:
    """Read the steps of a file; none without one. Raises ValueError, OSError."""
    return StepsView(_read(files, path).steps)


class ClockSteps:
    """The steps of one store. Any thread may read them, one at a time may change them."""

    def __init__(self, files: FileSystem, path: Path, *, writable: bool) -> None:
        """Load the file; one that cannot be read counts as empty. Raises OSError."""
        self._files = files
        self._path = path
        self._writable = writable
        try:
            known = _read(files, path)
        except ValueError as error:
            _log.error("steps of the clock are forgotten, their file cannot be read: %s", error)
            known = _File()
        self._known = known
        self.view = StepsView(known.steps)
        self.is_saved = True
        """Whether the file has the content of memory."""

    def current(self) -> StepsView:
        """The steps noted by now."""
        return self.view

    def shift_ms(self, offset: int) -> int:
        """``StepsView.shift_ms`` by the steps noted by now."""
        return self.view.shift_ms(offset)

    def base_of(self, boot_id: str) -> int | None:
        """The difference of the wall clock and the monotonic clock when last compared in this start
        of the machine, or None."""
        return self._known.base_ms if self._known.boot_id == boot_id else None

    def change(
        self, boot_id: str, base_ms: int, step: ClockStep | None, *, bounds: tuple[int, int]
    ) -> None:
        """Record a comparison of the clocks, and a step.

        ``bounds`` are those of the log: steps below it are forgotten, and one beyond its end is
        moved to its end, the place of the next message. Durable at return, or ``is_saved`` is
        False.
        """
        low, end = bounds
        steps = [
            each if each.offset <= end else each.model_copy(update={"offset": end})
            for each in self._known.steps
            if each.offset > low
        ]
        steps += [] if step is None else [step]
        changed = _File(boot_id=boot_id, base_ms=base_ms, steps=tuple(steps[-STEPS_MAX:]))
        if changed != self._known:
            self._known, self.view = changed, StepsView(changed.steps)
            self.is_saved = False
            self.save()

    def save(self) -> None:
        """Save unsaved changes; after a failed write, the next call retries."""
        if self.is_saved or not self._writable:
            return
        try:
            sealed_json.write(self._files, self._path, self._known)
            self.is_saved = True
        except OSError as error:
            _log.error("steps of the clock are not saved, retried later: %s", error)


def _read(files: FileSystem, path: Path) -> _File:
    return sealed_json.read(files, path, _File) or _File()
