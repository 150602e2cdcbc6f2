"""The thread that leads: it alone touches the coordinator, and takes what waits as one append."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
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

T = TypeVar("T")
log = logs.get(__name__)


class Busy(CoordinatorError):
    """Too many requests wait for the coordinator."""


@dataclass(frozen=True, slots=True)
class _Job:
    ask: Begin | Decide | Callable[[Coordinator], Any]
    done: Future[Any]


class Worker:
    """Runs a coordinator. Its asking methods may be called from any thread."""

    def __init__(self, coordinator: Coordinator, leadership: Leadership) -> None:
        self._coordinator = coordinator
        self._leadership = leadership
        self._term: int | None = None
        self._jobs: queue.Queue[_Job | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._ending = False
        self.trouble: str | None = "the half messages are being read"
        """Why nothing can be begun or decided just now."""

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """What waits is refused, and the thread ends."""
        self._ending = True
        with suppress(queue.Full):  # then it is awake
            self._jobs.put_nowait(None)

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self.interrupt()
        self._thread.join()

    def begin(self, asked: Begin) -> Future[Transaction]:
        """Its future raises a CoordinatorError."""
        return self._put(asked)

    def decide(self, asked: Decide) -> Future[Decided]:
        """Its future raises a CoordinatorError."""
        return self._put(asked)

    def ask(self, look: Callable[[Coordinator], T]) -> Future[T]:
        """Call ``look`` on the coordinator's thread."""
        return self._put(look)

    def _put(self, ask: Begin | Decide | Callable[[Coordinator], Any]) -> Future[Any]:
        """Raises Busy."""
        done: Future[Any] = Future()
        try:
            self._jobs.put_nowait(_Job(ask, done))
        except queue.Full:
            raise Busy(f"{WAITING_MAX} requests wait for the coordinator already") from None
        return done

    def _run(self) -> None:
        while not self._ending:
            self._serve(self._next(self._step()))
        with suppress(CoordinatorError):
            self._keep_term()
            self._coordinator.leave()
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if job is not None:
                job.done.set_exception(NotLoaded("the coordinator is ending"))

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
            log.warning("transactions wait", why=trouble)
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
        try:
            job = self._jobs.get(timeout=timeout_s) if timeout_s > 0 else self._jobs.get_nowait()
            while job is not None and len(jobs) < BATCH_MAX:
                jobs.append(job)
                job = self._jobs.get_nowait()
            if job is not None:
                jobs.append(job)
        except queue.Empty:
            pass
        return jobs

    def _serve(self, jobs: list[_Job]) -> None:
        if self.trouble is not None:
            for job in jobs:
                job.done.set_exception(NotLoaded(self.trouble))
            return
        coordinator = self._coordinator
        begins = [(job, job.ask) for job in jobs if isinstance(job.ask, Begin)]
        decisions = [(job, job.ask) for job in jobs if isinstance(job.ask, Decide)]
        _together(begins, coordinator.begin)
        _together(decisions, coordinator.decide)
        for job in jobs:
            if callable(job.ask):
                try:
                    job.done.set_result(job.ask(coordinator))
                except CoordinatorError as error:
                    job.done.set_exception(error)


def _together(jobs: list[tuple[_Job, T]], act: Callable[[list[T]], list[Any]]) -> None:
    """One call for all; each is told its own result."""
    if not jobs:
        return
    try:
        results = act([asked for _, asked in jobs])
    except CoordinatorError as error:
        results = [error] * len(jobs)
    for (job, _), result in zip(jobs, results, strict=True):
        if isinstance(result, CoordinatorError):
            job.done.set_exception(result)
        else:
            job.done.set_result(result)
