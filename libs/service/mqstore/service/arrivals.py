"""Long polls: one thread waits on the state page's futex and wakes coroutines on arrivals.

A poll reads its queues, registers a watch, and compares the ends of the queues once more before it
waits. Therefore it misses no message that arrives between the read and the watch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from mqstore.service import logs

log = logs.get(__name__)

WAIT_S: Final = 0.5
"""Longest single wait of the thread in seconds, and so the longest delay of ``stop``."""
CHECK_INTERVAL_MIN_S: Final = 0.001
"""Shortest time between two checks of the queues, which limits the load of a busy store. The first
arrival after an idle time is not delayed."""
CHECK_INTERVAL_RATIO: Final = 10
"""Shortest interval of checks, as a multiple of the duration of a check: checks of many queues use
at most a tenth of one core."""
WAKE_BATCH: Final = 64
"""Number of polls woken in one turn of the event loop, which takes some milliseconds."""


class ArrivalSource(Protocol):
    """The store as the thread sees it. Methods are called from the thread and may block."""

    def arrival_count(self) -> int:
        """Return a number that changes with every arrival."""

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        """Wait until ``arrival_count`` differs from ``seen``, or for ``timeout_s``."""

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message, which is the end of the queue."""


Watch = tuple[str, int, int]
"""Topic, queue id, and the queue offset whose arrival is waited for."""
QueueKey = tuple[str, int]
"""Topic and queue id."""
Future = asyncio.Future[None]


class Arrivals:
    """Wakes coroutines of one event loop when messages arrive.

    ``watch``, ``wake`` and ``interrupt`` are called on that loop only.
    """

    def __init__(self, source: ArrivalSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._lock = threading.Condition()
        self._watches: dict[QueueKey, dict[Future, int]] = {}
        """By queue, the waiting futures, each with the queue offset that it waits for."""
        self._futures: set[Future] = set()
        self._stopping = False
        self._next_check_at = 0.0
        self.interrupted = False
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __len__(self) -> int:
        return len(self._futures)

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

    def interrupt(self) -> None:
        """Wake every poll, and let no further one wait, because the service is shutting down."""
        self.interrupted = True
        self._resolve(list(self._futures))

    def wake(self, futures: Iterable[Future] | None = None) -> None:
        """Wake polls by their futures (default: every poll), so that they read their queues
        again."""
        self._resolve(list(self._futures if futures is None else futures))

    @contextmanager
    def watch(self, *watches: Watch) -> Iterator[Future]:
        """Yield a future that is done once one of the queues ends behind its offset."""
        future: Future = self._loop.create_future()
        if self.interrupted:
            future.set_result(None)
        with self._lock:
            self._futures.add(future)
            for topic, queue_id, offset in watches:
                self._watches.setdefault((topic, queue_id), {})[future] = offset
            self._lock.notify()
        if not future.done() and self._has_arrived(watches):
            future.set_result(None)
        try:
            yield future
        finally:
            with self._lock:
                self._futures.discard(future)
                for topic, queue_id, _ in watches:
                    self._forget((topic, queue_id), future)

    def _has_arrived(self, watches: tuple[Watch, ...]) -> bool:
        """Return whether a message arrived since the caller read its queues.

        The thread may have seen that arrival before the watch was registered, and would wait for
        the next one.
        """
        try:
            return any(self._source.end_of(topic, queue) > at for topic, queue, at in watches)
        except OSError:
            return False  # the thread reads the queue too, and logs the error

    def _forget(self, key: QueueKey, future: Future) -> None:
        waiting = self._watches[key]
        waiting.pop(future, None)
        if not waiting:
            del self._watches[key]

    def _run(self) -> None:
        while self._has_watches():
            try:
                self._check_queues()
            except Exception:
                log.exception("check for arrivals failed")
                self._pause(WAIT_S)

    def _check_queues(self) -> None:
        self._pause(self._next_check_at - time.monotonic())
        begun = time.monotonic()
        seen = self._source.arrival_count()
        with self._lock:
            keys = {key: min(waiting.values()) for key, waiting in self._watches.items()}
        ends = {
            key: end for key, least in keys.items() if (end := self._source.end_of(*key)) > least
        }
        took = time.monotonic() - begun
        self._next_check_at = begun + max(CHECK_INTERVAL_MIN_S, CHECK_INTERVAL_RATIO * took)
        if not self._wake_arrived(ends):
            self._source.wait_for_arrival(seen, WAIT_S)

    def _wake_arrived(self, ends: dict[QueueKey, int]) -> bool:
        """Wake polls whose offsets lie below these ends. Return whether there were any."""
        with self._lock:
            arrived = [
                future
                for key, end in ends.items()
                for future, offset in self._watches.get(key, {}).items()
                if end > offset and not future.done()
            ]
        if arrived:
            self._loop.call_soon_threadsafe(self._resolve, arrived)
        return bool(arrived)

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

    def _resolve(self, futures: list[Future]) -> None:
        """Resolve some futures now, the rest in later turns, since each reply takes loop time."""
        for future in futures[:WAKE_BATCH]:
            if not future.done():
                future.set_result(None)
        if len(futures) > WAKE_BATCH:
            self._loop.call_soon(self._resolve, futures[WAKE_BATCH:])
