"""A scheduler without threads: a wait runs the other services' steps, in a seeded order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

from mqstore.storage.seams import BackgroundService, ServiceHandle, Signal
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import PowerCut

STEPS_MAX: Final = 100_000
"""Steps within one wait or run: more is a service that is always due and never done."""
EARLY_STEP_CHANCE: Final = 0.1
"""How often a service that is not due runs all the same, as a spurious wake-up would have it."""


class Deadlock(AssertionError):
    """A wait without limit for what no service will ever do."""


class SimulatedService:
    """A started service; its handle."""

    def __init__(
        self,
        scheduler: SimulatedScheduler,
        service: BackgroundService,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.service = service
        self.due = scheduler.clock.monotonic()
        self.stepping = False
        self._scheduler = scheduler
        self._on_failure = on_failure

    def wake(self) -> None:
        self.due = min(self.due, self._scheduler.clock.monotonic())

    def stop(self) -> None:
        self._scheduler.forget(self)

    def step(self) -> None:
        now = self._scheduler.clock.monotonic()
        self.stepping = True
        self.due = math.inf  # a wake during the step counts
        try:
            self.due = min(self.due, self.service.step(now))
        except PowerCut:
            raise
        except BaseException as error:
            self.stop()
            self._on_failure(error)
        finally:
            self.stepping = False


class SimulatedSignal:
    """``seams.Signal``: waiting runs other services; when none is due, time passes."""

    def __init__(self, scheduler: SimulatedScheduler) -> None:
        self._scheduler = scheduler

    def notify(self) -> None:
        pass

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        clock = self._scheduler.clock
        deadline = math.inf if timeout_s is None else clock.monotonic() + timeout_s
        for _ in range(STEPS_MAX):
            if predicate():
                return True
            if self._scheduler.run_one():
                continue
            if clock.monotonic() >= deadline:
                return False
            self._scheduler.pass_time(deadline)
        raise Deadlock(f"a wait did not end within {STEPS_MAX} steps; some service spins")


class SimulatedScheduler:
    """``seams.Scheduler``. All in one thread, the same for the same seed and calls."""

    def __init__(self, rng: random.Random, clock: SimulatedClock) -> None:
        self.clock = clock
        self._rng = rng
        self._services: list[SimulatedService] = []

    def signal(self) -> Signal:
        return SimulatedSignal(self)

    def start(
        self, service: BackgroundService, on_failure: Callable[[BaseException], None]
    ) -> ServiceHandle:
        started = SimulatedService(self, service, on_failure)
        self._services.append(started)
        return started

    @property
    def is_idle(self) -> bool:
        """Whether no service runs."""
        return not self._services

    def forget(self, stopped: SimulatedService) -> None:
        self._services = [service for service in self._services if service is not stopped]

    def run_one(self) -> bool:
        """Run one step of one service that is due, or now and then of one that is not."""
        idle = [service for service in self._services if not service.stepping]
        now = self.clock.monotonic()
        due = [service for service in idle if service.due <= now]
        if not due:
            return False
        early = self._rng.random() < EARLY_STEP_CHANCE
        self._rng.choice(idle if early else due).step()
        return True

    def pass_time(self, until: float) -> None:
        """Let time pass up to the next service's turn, at most ``until``."""
        turns = [service.due for service in self._services if not service.stepping]
        goal = min([until, *turns])
        if math.isinf(goal):
            raise Deadlock("a wait without limit, and no service has anything to do")
        self.clock.advance_to(goal)

    def run_for(self, seconds: float) -> None:
        """Let time pass, running every service whose turn comes."""
        SimulatedSignal(self).wait_for(lambda: False, seconds)

    def run_some(self, most: int) -> None:
        """Run a random number of steps that are due, up to ``most``, in no time."""
        for _ in range(self._rng.randint(0, most)):
            if not self.run_one():
                return
