"""The thread that leads: it reads, checks and keeps time, and takes whatever the lane does not."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from mqstore.coordinator.begin import Begin
from mqstore.coordinator.check import RETRY_S
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide, Decided
from mqstore.coordinator.errors import CoordinatorError, NotLoaded
from mqstore.coordinator.failing import Failing
from mqstore.coordinator.jobs import (
    BATCH_MAX,
    Ask,
    Job,
    Results,
    begins_of,
    decisions_of,
    deliver,
)
from mqstore.coordinator.lane import Floor, Lane
from mqstore.coordinator.leadership import Leadership, NotLeading
from mqstore.coordinator.log import SoonLog
from mqstore.coordinator.transactions import Transaction
from mqstore.service import logs

WAITING_MAX: Final = 4_096
STEP_MAX_S: Final = 1.0
_ENDING: Final = "the coordinator is ending"

T = TypeVar("T")
log = logs.get(__name__)


class Busy(CoordinatorError):
    """Too many requests wait for the coordinator."""


class Worker:
    """Runs a coordinator. Its asking methods are for the event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        appends: SoonLog,
        leadership: Leadership,
        failed: Callable[[BaseException], None],
    ) -> None:
        """``appends`` is the coordinator's log; ``failed`` is called on the event loop when the
        thread or the lane ends by a defect."""
        self._coordinator = coordinator
        self._appends = appends
        self._failed = failed
        self._leadership = leadership
        self._term: int | None = None
        self._has_led = False
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """None only wakes the thread."""
        self._floor = Floor()
        self._lane = Lane(
            *(coordinator, appends, self._floor),
            is_open=self._knows_all,
            longer_way=self._take_over,
            taken=self._look_ahead,
            failed=failed,
        )
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._ending = False
        self._wake_at = 0.0
        self.trouble: str | None = "the half messages are being read"
        """Why nothing can be begun or decided just now."""
        self._steps_failing = Failing(time.monotonic)
        self._turns = 0

    @property
    def failing_s(self) -> float:
        """For how long no step has succeeded, or no append, up to the last one that failed: for a
        reason that another coordinator need not have. What takes its time fails in nothing."""
        return max(self._steps_failing.seconds, self._coordinator.appends_failing_s)

    @property
    def moves(self) -> tuple[int, int]:
        """Another one again and again while the thread does anything at all, or waits."""
        return self._turns, self._appends.answers

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """What waits is refused, and the thread ends."""
        self._ending = True
        self._jobs.put(None)

    def stop(self) -> None:
        """Returns when the thread has ended, by whatever, and all who waited are told."""
        self.interrupt()
        self._thread.join()
        while not self._jobs.empty():
            self._tell([(job, NotLoaded(_ENDING)) for job in self._next(0)])

    def begin(self, asked: Begin) -> asyncio.Future[Transaction]:
        """Its future raises a CoordinatorError."""
        return self._put(asked)

    def decide(self, asked: Decide) -> asyncio.Future[Decided]:
        """Its future raises a CoordinatorError."""
        return self._put(asked)

    def ask(self, look: Callable[[Coordinator], T]) -> asyncio.Future[T]:
        """Call ``look`` on the coordinator's thread. Its future raises a CoordinatorError."""
        return self._put(look)

    # on the event loop

    def _put(self, ask: Ask) -> asyncio.Future[Any]:
        """Raises Busy, NotLoaded."""
        if self._ending:
            raise NotLoaded(_ENDING)
        if self._jobs.qsize() + len(self._lane) >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} requests wait for the coordinator already")
        job = Job(ask, self._loop.create_future())
        if callable(ask):
            self._jobs.put(job)
        else:
            self._lane.put(job)
        return job.told

    def _knows_all(self) -> bool:
        """Whether what was read of the log counts now."""
        if self._ending or self.trouble is not None or not self._coordinator.is_loaded:
            return False
        try:
            return self._leadership.term() == self._term
        except CoordinatorError:
            return False

    def _take_over(self, jobs: list[Job]) -> None:
        if self._ending:
            deliver([(job, NotLoaded(_ENDING)) for job in jobs])
            return
        for job in jobs:
            self._jobs.put(job)

    def _look_ahead(self) -> None:
        """Wake the thread where it is needed before it would wake by itself."""
        if not self._coordinator.is_loaded or self._coordinator.next_check_at < self._wake_at:
            self._wake_at = 0.0
            self._jobs.put(None)

    # on the thread

    def _run(self) -> None:
        try:
            self._lead()
        except BaseException as error:
            log.exception("the coordinator's thread failed")
            self._loop.call_soon_threadsafe(self._failed, error)

    def _lead(self) -> None:
        while not self._ending:
            self._turns += 1
            with self._floor.held():
                wait_s = self._step()
            jobs = self._next(wait_s)
            if jobs:
                with self._floor.held():
                    self._serve(jobs)
        with self._floor.held(), suppress(CoordinatorError):
            self._keep_term()
            self._coordinator.leave()

    def _step(self) -> float:
        """Seconds until the next step."""
        now = time.monotonic()
        wake = now + RETRY_S
        trouble = failure = None
        try:
            self._keep_term()
            wake = self._coordinator.step(now)
        except CoordinatorError as error:
            trouble, failure = str(error), error
        if trouble is not None and trouble != self.trouble:
            # At a start the other services may still be starting.
            tell = log.warning if self._has_led else log.info
            tell("transactions wait", why=trouble)
        self._has_led |= trouble is None
        self.trouble = trouble
        self._note(failure)
        self._wake_at = min(now + STEP_MAX_S, wake)
        return max(0.0, self._wake_at - now)

    def _note(self, failure: CoordinatorError | None) -> None:
        if failure is None or isinstance(failure, (NotLeading, NotLoaded)):
            self._steps_failing.over()
        else:
            self._steps_failing.failed()

    def _keep_term(self) -> None:
        """What was read in another time in the lead is out of date. Raises NotLeading."""
        term = None
        try:
            term = self._leadership.term()
        finally:
            if term != self._term:
                self._coordinator.forget()
                self._term = term

    def _next(self, timeout_s: float) -> list[Job]:
        """What waits, at least one unless the time is up or the thread is woken."""
        jobs: list[Job] = []
        with suppress(queue.Empty):
            job = self._jobs.get(timeout=timeout_s) if timeout_s > 0 else self._jobs.get_nowait()
            while job is not None:
                jobs.append(job)
                if len(jobs) == BATCH_MAX:
                    break
                job = self._jobs.get_nowait()
        return jobs

    def _serve(self, jobs: list[Job]) -> None:
        if self.trouble is not None:
            self._tell([(job, NotLoaded(self.trouble)) for job in jobs])
            return
        begins, decisions = begins_of(jobs), decisions_of(jobs)
        begun = {ask.key for _, ask in begins}
        if any(ask.key in begun for _, ask in decisions):  # told before it was answered
            self._together(begins, [])
            begins = []
        self._together(begins, decisions)
        self._tell([(job, self._look(job.ask)) for job in jobs if callable(job.ask)])

    def _look(self, look: Callable[[Coordinator], Any]) -> Any:
        """What it answers or raises."""
        try:
            return look(self._coordinator)
        except CoordinatorError as error:
            return error

    def _together(
        self, begins: list[tuple[Job, Begin]], decisions: list[tuple[Job, Decide]]
    ) -> None:
        """One append for all; each is told its own result."""
        jobs = [job for job, _ in [*begins, *decisions]]
        if not jobs:
            return
        try:
            begun, decided = self._coordinator.take(
                [ask for _, ask in begins], [ask for _, ask in decisions]
            )
            self._tell(list(zip(jobs, [*begun, *decided], strict=True)))
        except CoordinatorError as error:
            self._tell([(job, error) for job in jobs])

    def _tell(self, results: Results) -> None:
        """All of them in one turn of the event loop."""
        if results:
            self._loop.call_soon_threadsafe(deliver, results)
