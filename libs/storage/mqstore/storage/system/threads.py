"""``seams.Scheduler`` and ``Signal`` on real threads, and the seams of production."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Condition, Thread, current_thread

from mqstore.storage.seams import BackgroundService, Clock, Scheduler, Seams, ServiceHandle, Signal
from mqstore.storage.system.clock import SystemClock
from mqstore.storage.system.posix_files import PosixFileSystem


class ThreadSignal:
    """A condition variable. Change the state, then ``notify``.

    A predicate only looks: it runs with the condition held, so it must take no lock that a
    notifier may hold.
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._waiters = 0

    def notify(self) -> None:
        # Who starts to wait after this look sees the state that the caller changed before it.
        if self._waiters > 0:
            with self._condition:
                self._condition.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        with self._condition:
            self._waiters += 1
            try:
                return self._condition.wait_for(predicate, timeout_s)
            finally:
                self._waiters -= 1


class ServiceThread:
    """One daemon thread that runs one service's steps."""

    def __init__(
        self,
        service: BackgroundService,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._service = service
        self._clock = clock
        self._on_failure = on_failure
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        self._stopping = False
        self._thread = Thread(target=self._run, name=service.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        # While set, a step that has not begun will see whatever the caller did before.
        if not self._awake:
            self._awake = True
            self._wakes.put(None)

    def stop(self) -> None:
        self._stopping = True
        self._wakes.put(None)
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self._on_failure(error)

    def _loop(self) -> None:
        due = self._clock.monotonic()
        while True:
            self._sleep_until(due)
            if self._stopping:
                return
            self._awake = False
            due = self._service.step(self._clock.monotonic())

    def _sleep_until(self, due: float) -> None:
        """Return when the time has come or somebody woke us."""
        remaining = due - self._clock.monotonic()
        try:
            if remaining <= 0:
                self._wakes.get_nowait()
            elif math.isinf(remaining):
                self._wakes.get()
            else:
                self._wakes.get(timeout=min(remaining, TIMEOUT_MAX))
        except Empty:
            pass


class ThreadScheduler:
    """``seams.Scheduler`` of production. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def signal(self) -> Signal:
        return ThreadSignal()

    def start(
        self, service: BackgroundService, on_failure: Callable[[BaseException], None]
    ) -> ServiceHandle:
        return ServiceThread(service, self._clock, on_failure)


def production_seams() -> Seams:
    """The real file system, clocks and threads, and the system's randomness."""
    clock = SystemClock()
    scheduler: Scheduler = ThreadScheduler(clock)
    return Seams(PosixFileSystem(), clock, scheduler, random.SystemRandom())
