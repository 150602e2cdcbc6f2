"""Events of several machines in the order of one clock, and the processes that they belong to."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

Action = Callable[[], object]
EVENTS_MAX: Final = 200_000
"""Events of one schedule: more is a loop that no time passes in."""


class Spinning(AssertionError):
    """A schedule does not end."""


class Events:
    """A heap of events, and the true time, in seconds. Machines have clocks of their own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.count = 0
        """Number of events that were run."""
        self._heap: list[tuple[float, int, Process | None, Action]] = []
        self._number = 0

    def at(self, when: float, action: Action, process: Process | None = None) -> None:
        """Run an action at a true time, in ``process`` while that is alive and not stopped."""
        self._number += 1
        heappush(self._heap, (max(when, self.now), self._number, process, action))

    def after(self, seconds: float, action: Action, process: Process | None = None) -> None:
        """Run an action after some true time."""
        self.at(self.now + seconds, action, process)

    def run_until(self, end: float) -> None:
        """Run the events up to a true time. Raises what they raise."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            when, _, process, action = heappop(heap)
            self.now = when
            if process is None:
                action()
            elif process.alive:
                process.run(action)
            self.count += 1
            if self.count > EVENTS_MAX:
                raise Spinning(f"more than {EVENTS_MAX} events up to {when:.3f} s")
        self.now = end


class Machine:
    """A machine with a monotonic clock that runs at its own rate. It may be without power."""

    def __init__(self, events: Events, name: str, rate: float = 1.0) -> None:
        self.events = events
        self.name = name
        self.rate = rate
        """Seconds of its clock in a true second."""
        self.is_up = True

    def monotonic(self) -> float:
        """Time of the machine's clock."""
        return self.events.now * self.rate

    def true_time(self, monotonic: float) -> float:
        """True time at which the machine's clock shows ``monotonic``."""
        return monotonic / self.rate


class Process:
    """A process of a machine. What belongs to it runs while it is alive and not stopped."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.events = machine.events
        self.alive = True
        self._stopped_until = 0.0
        """True time until which it is stopped, as by SIGSTOP."""
        self._held: list[Action] = []
        """Its events of the time while it is stopped."""
        self.before: Action | None = None
        """Called before each of its events."""

    @property
    def name(self) -> str:
        """Name of its machine."""
        return self.machine.name

    def monotonic(self) -> float:
        """Time of the machine's clock."""
        return self.machine.monotonic()

    def after(self, seconds: float, action: Action) -> None:
        """Run an action after some time of the machine's clock."""
        self.events.after(seconds / self.machine.rate, action, self)

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after some true time."""
        self._stopped_until = max(self._stopped_until, self.events.now + seconds)
        self.events.at(self._stopped_until, self._go_on)

    def run(self, action: Action) -> None:
        """Run one of its events, or keep it while the process is stopped."""
        if self._held or self.events.now < self._stopped_until:
            self._held.append(action)
            return
        if self.before is not None:
            self.before()
        action()

    def _go_on(self) -> None:
        """Run what was kept, in its order."""
        if self.events.now < self._stopped_until:
            return
        held, self._held = self._held, []
        for action in held:
            if self.alive:
                self.run(action)
