"""The thread that leads: it alone touches the coordinator, and takes what waits as one append."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mqstore.coordinator.begin import Begin
from mqstore.coordinator.check import RETRY_S
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide, Decided
from mqstore.coordinator.errors import CoordinatorError, NotLoaded
from mqstore.coordinator.leadership import Leadership
from mqstore.coordinator.transactions import Transaction
from mqstore.service import logs

BATCH_MAX: Final = 64
"""Begins or decisions of one append."""
WAITING_MAX: Final = 4_096
STEP_MAX_S: Final = 1.0
_ENDING: Final = "the coordinator is ending"

T = TypeVar("T")
log = logs.get(__name__)


class Busy(CoordinatorError):
    """Too many requests wait for the coordinator."""


Ask = Begin | Decide | Callable[[Coordinator], Any]


@dataclass(frozen=True, slots=True)
class _Job:
    ask: Ask
    told: asyncio.Future[Any]


class Worker:
    """Runs a coordinator. Its asking methods are for the event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        leadership: Leadership,
        failed: Callable[[BaseException], None],
    ) -> None:
        """``failed`` is called on the event loop when the thread ends by a defect."""
        self._coordinator = coordinator
        self._failed = failed
        self._leadership = leadership
        self._term: int | None = None
        self._has_led = False
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._ending = False
        self.trouble: str | None = "the half messages are being read"
        """Why nothing can be begun or decided just now."""

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

    def _put(self, ask: Ask) -> asyncio.Future[Any]:
        """Raises Busy, NotLoaded."""
        if self._ending:
            raise NotLoaded(_ENDING)
        if self._jobs.qsize() >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} requests wait for the coordinator already")
        told: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(_Job(ask, told))
        return told

    def _run(self) -> None:
        try:
            self._lead()
        except BaseException as error:
            log.exception("the coordinator's thread failed")
            self._loop.call_soon_threadsafe(self._failed, error)

    def _lead(self) -> None:
        while not self._ending:
            self._serve(self._next(self._step()))
        with suppress(CoordinatorError):
            self._keep_term()
            self._coordinator.leave()

    def _step(self) -> float:
        """Seconds until the next step."""
        now = time.monotonic()
        wake = now + RETRY_S
        trouble = None
        try:
            self._keep_term()
            wake = self._coordinator.step(now)
        except CoordinatorError as error:
            trouble = str(error)
        if trouble is not None and trouble != self.trouble:
            # At a start the other services may still be starting.
            tell = log.warning if self._has_led else log.info
            tell("transactions wait", why=trouble)
        self._has_led |= trouble is None
        self.trouble = trouble
        return min(STEP_MAX_S, max(0.0, wake - now))

    def _keep_term(self) -> None:
        """What was read in another time in the lead is out of date. Raises NotLeading."""
        term = None
        try:
            term = self._leadership.term()
        finally:
            if term != self._term:
                self._coordinator.forget()
                self._term = term

    def _next(self, timeout_s: float) -> list[_Job]:
        """What waits, at least one unless the time is up."""
        jobs: list[_Job] = []
        with suppress(queue.Empty):
            job = self._jobs.get(timeout=timeout_s) if timeout_s > 0 else self._jobs.get_nowait()
            while job is not None:
                jobs.append(job)
                if len(jobs) == BATCH_MAX:
                    break
                job = self._jobs.get_nowait()
        return jobs

    def _serve(self, jobs: list[_Job]) -> None:
        if self.trouble is not None:
            self._tell([(job, NotLoaded(self.trouble)) for job in jobs])
            return
        begins = [(job, job.ask) for job in jobs if isinstance(job.ask, Begin)]
        decisions = [(job, job.ask) for job in jobs if isinstance(job.ask, Decide)]
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
        self, begins: list[tuple[_Job, Begin]], decisions: list[tuple[_Job, Decide]]
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

    def _tell(self, results: list[tuple[_Job, Any]]) -> None:
        """All of them in one turn of the event loop."""
        if results:
            self._loop.call_soon_threadsafe(_deliver, results)


def _deliver(results: list[tuple[_Job, Any]]) -> None:
    for job, result in results:
        if job.told.done():  # nobody waits any more
            continue
        if isinstance(result, CoordinatorError):
            job.told.set_exception(result)
        else:
            job.told.set_result(result)
