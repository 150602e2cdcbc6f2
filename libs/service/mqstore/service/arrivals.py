"""Long polls: coroutines are woken when messages arrive.

``WriterArrivals`` is for the process that writes the store: the put itself notifies the event loop,
which checks the queues. ``ReaderArrivals`` is for other processes: a thread waits on the state
page's futex, and checks the queues, which may read the disk.

A poll reads its queues, registers a watch, and compares the ends of the queues once more before it
waits. Therefore it misses no message that arrives between the read and the watch.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from mqstore.service import logs

log = logs.get(__name__)

WAIT_S: Final = 0.5
"""Longest single wait of the thread in seconds, and so the longest delay of ``stop``; also the
pause after a check that failed."""
CHECK_INTERVAL_MIN_S: Final = 0.001
"""Shortest time between two checks of the queues, which limits the load of a busy store. The first
arrival after an idle time is not delayed."""
CHECK_INTERVAL_RATIO: Final = 10
"""Shortest interval of checks, as a multiple of the duration of a check: checks of many queues use
at most a tenth of one core."""
WAKE_BATCH: Final = 64
"""Number of polls woken in one turn of the event loop, which takes some milliseconds."""


class Queues(Protocol):
    """The queues of a store."""

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message, which is the end of the queue. Raises
        OSError."""


class WrittenQueues(Queues, Protocol):
    """The queues of a store that this process writes."""

    def notify(self, event_fd: int) -> None:
        """Add 1 to an event file descriptor at the next arrival, once; -1: do not."""


class ReadQueues(Queues, Protocol):
    """The queues of a store that another process writes. Methods are called from the thread and may
    block."""

    def arrival_count(self) -> int:
        """Return a number that changes with every arrival."""

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        """Wait until ``arrival_count`` differs from ``seen``, or for ``timeout_s``."""


Watch = tuple[str, int, int]
"""Topic, queue id, and the queue offset whose arrival is waited for."""
QueueKey = tuple[str, int]
"""Topic and queue id."""


class Waker(Protocol):
    """A future, or another object that is woken once one of its queues has a message."""

    def done(self) -> bool:
        """Return whether it was woken since its last watch."""

    def set_result(self, result: None, /) -> None:
        """Wake it. Called on the loop, once for each watch."""


class Watches:
    """The queues that coroutines of one event loop wait for, of which a subclass is notified.

    ``watch``, ``wake`` and ``interrupt`` are called on that loop only.
    """

    def __init__(self, queues: Queues, loop: asyncio.AbstractEventLoop) -> None:
        self._queues = queues
        self._loop = loop
        self._lock = threading.Condition()
        self._watches: dict[QueueKey, dict[Waker, int]] = {}
        """By queue, what waits, each with the queue offset that it waits for."""
        self._wakers: set[Waker] = set()
        self._next_check_at = 0.0
        """Monotonic seconds."""
        self.interrupted = False

    def __len__(self) -> int:
        return len(self._wakers)

    def interrupt(self) -> None:
        """Wake every poll, and let no further one wait, because the service is shutting down."""
        self.interrupted = True
        self._wake(list(self._wakers))

    def wake(self, wakers: Iterable[Waker] | None = None) -> None:
        """Wake polls (default: every poll), so that they read their queues again."""
        self._wake(list(self._wakers if wakers is None else wakers))

    @contextmanager
    def watch(self, *watches: Watch) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done once one of the queues ends behind its offset."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.add(future, watches):
            future.set_result(None)
        try:
            yield future
        finally:
            self.remove(future, watches)

    def add(self, waker: Waker, watches: Sequence[Watch]) -> bool:
        """Wake ``waker`` once one of the queues ends behind its offset; return whether one does so
        already, or no poll may wait any more. Then the caller has to wake it."""
        with self._lock:
            self._wakers.add(waker)
            for topic, queue_id, offset in watches:
                self._watches.setdefault((topic, queue_id), {})[waker] = offset
            self._on_watch()
        return self.interrupted or self._has_arrived(watches)

    def remove(self, waker: Waker, watches: Sequence[Watch]) -> None:
        """End a watch, with the queues of its ``add``."""
        with self._lock:
            self._wakers.discard(waker)
            for topic, queue_id, _ in watches:
                self._forget((topic, queue_id), waker)

    def _on_watch(self) -> None:
        """Begin to check the queues. The caller holds the lock."""

    def _has_arrived(self, watches: Sequence[Watch]) -> bool:
        """Return whether a message arrived since the caller read its queues.

        A check may have seen that arrival before the watch was registered, and would wait for the
        next one.
        """
        try:
            return any(self._queues.end_of(topic, queue) > at for topic, queue, at in watches)
        except OSError:
            return False  # a check reads the queue too, and logs the error

    def _forget(self, key: QueueKey, waker: Waker) -> None:
        waiting = self._watches[key]
        waiting.pop(waker, None)
        if not waiting:
            del self._watches[key]

    def _find_arrived(self) -> list[Waker]:
        """Check the queues; return the polls whose messages arrived. Raises OSError."""
        begun = time.monotonic()
        with self._lock:
            keys = {key: min(waiting.values()) for key, waiting in self._watches.items()}
        end_of = self._queues.end_of
        ends = {key: end for key, least in keys.items() if (end := end_of(*key)) > least}
        took = time.monotonic() - begun
        self._next_check_at = begun + max(CHECK_INTERVAL_MIN_S, CHECK_INTERVAL_RATIO * took)
        with self._lock:
            arrived = [
                waker
                for key, end in ends.items()
                for waker, offset in self._watches.get(key, {}).items()
                if end > offset and not waker.done()
            ]
        return list(dict.fromkeys(arrived))

    def _wake(self, wakers: Sequence[Waker]) -> None:
        """Wake some now, the rest in later turns, since each reply takes loop time."""
        for waker in wakers[:WAKE_BATCH]:
            if not waker.done():
                waker.set_result(None)
        if len(wakers) > WAKE_BATCH:
            self._loop.call_soon(self._wake, wakers[WAKE_BATCH:])


class WriterArrivals(Watches):
    """Wakes coroutines of one event loop when this process has put messages, in any thread.

    All methods are called on that loop only.
    """

    def __init__(self, queues: WrittenQueues, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(queues, loop)
        self._notify = queues.notify
        self._event_fd = -1
        self._is_armed = False
        """Whether the next arrival, or a timer, leads to a check."""

    def start(self) -> None:
        """Begin to wait for arrivals."""
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop.add_reader(self._event_fd, self._on_arrival)

    def stop(self) -> None:
        """End. Does nothing if it was never started."""
        if self._event_fd >= 0:
            self._notify(-1)
            self._loop.remove_reader(self._event_fd)
            os.close(self._event_fd)
            self._event_fd = -1

    def _on_watch(self) -> None:
        if not self._is_armed and self._event_fd >= 0:
            self._is_armed = True
            self._notify(self._event_fd)

    def _on_arrival(self) -> None:
        os.eventfd_read(self._event_fd)
        left = self._next_check_at - time.monotonic()
        if left > 0:
            self._loop.call_later(left, self._check)
        else:
            self._check()

    def _check(self) -> None:
        self._is_armed = False
        if not self._watches:
            return
        self._on_watch()  # before the check: it may miss what arrives meanwhile
        try:
            self._wake(self._find_arrived())
        except OSError:
            log.exception("check for arrivals failed")
            self._loop.call_later(WAIT_S, self._check)


class ReaderArrivals(Watches):
    """Wakes coroutines of one event loop when another process has put messages."""

    def __init__(self, queues: ReadQueues, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(queues, loop)
        self._source = queues
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. Does nothing if the thread was never started."""
        with self._lock:
            self._stopping = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _on_watch(self) -> None:
        self._lock.notify()

    def _run(self) -> None:
        while self._has_watches():
            try:
                self._check_queues()
            except Exception:
                log.exception("check for arrivals failed")
                self._pause(WAIT_S)

    def _check_queues(self) -> None:
        self._pause(self._next_check_at - time.monotonic())
        seen = self._source.arrival_count()
        if arrived := self._find_arrived():
            self._loop.call_soon_threadsafe(self._wake, arrived)
        else:
            self._source.wait_for_arrival(seen, WAIT_S)

    def _has_watches(self) -> bool:
        """Wait for a watch. Return False once the thread is to stop."""
        with self._lock:
            while not self._watches and not self._stopping:
                self._lock.wait()
            return not self._stopping

    def _pause(self, seconds: float) -> None:
        with self._lock:
            if not self._stopping and seconds > 0:
                self._lock.wait(seconds)
