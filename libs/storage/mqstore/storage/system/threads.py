"""``seams.Scheduler`` and ``Signal`` on real threads, and the seams of production."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Thread, current_thread

from mqstore.storage._kernel import add_u32, futex_wait, futex_wake, load_u32
from mqstore.storage.seams import BackgroundService, Clock, Scheduler, Seams, ServiceHandle, Signal
from mqstore.storage.system.clock import SystemClock
from mqstore.storage.system.posix_files import PosixFileSystem


class ThreadSignal:
    """A futex word. Change the state, then ``notify``.

    Waking takes no lock, unlike a condition variable. A predicate may see the state in the middle
    of a change, so it must only read.
    """

    def __init__(self) -> None:
        # Eight-byte alignment is what the allocator gives; a futex needs four.
        self._word = memoryview(bytearray(8))

    def notify(self) -> None:
        """Wake all waiting threads."""
        add_u32(self._word, 0, 1)
        futex_wake(self._word, 0)

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until ``predicate`` is true; False after ``timeout_s``."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = load_u32(self._word, 0)
            if predicate():
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return predicate()
            futex_wait(self._word, 0, seen, None if timeout_s is None else remaining)


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
        """Make the next step due now."""
        # While set, a step that has not begun will see the caller's changes.
        if not self._awake:
            self._awake = True
            self._wakes.put(None)

    def stop(self) -> None:
        """Stop after the current step, and wait for the thread."""
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
        """Sleep until ``due``, or until ``wake`` is called."""
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
    """The ``seams.Scheduler`` of production. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def signal(self) -> Signal:
        """Create a signal."""
        return ThreadSignal()

    def start(
        self, service: BackgroundService, on_failure: Callable[[BaseException], None]
    ) -> ServiceHandle:
        """Run a service in a thread of its own."""
        return ServiceThread(service, self._clock, on_failure)


def production_seams() -> Seams:
    """Build the real file system, clocks and threads, and the system's randomness."""
    clock = SystemClock()
    scheduler: Scheduler = ThreadScheduler(clock)
    return Seams(PosixFileSystem(), clock, scheduler, random.SystemRandom())
