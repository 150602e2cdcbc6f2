"""Long polls: one thread waits on the state page's futex and tells coroutines of arrivals.

A poll looks, registers, looks whether its queues end further by now, then waits, so that nothing
that arrives in between is missed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from mqstore.service import logs

log = logs.get(__name__)

WAIT_S: Final = 0.5
"""Longest single wait of the thread: how fast it notices its own end."""
PACE_S: Final = 0.001
"""From one look at the queues to the next, at least: a busy store must not keep the thread busy,
and an idle one's first arrival is told at once."""
PART: Final = 10
"""A look that takes long, since there are many queues to look at, is that much longer away from the
next one: a tenth of one core at most."""
AT_ONCE: Final = 64
"""Polls that are woken in one turn of the event loop: some milliseconds."""


class ArrivalSource(Protocol):
    """What the thread looks at; its methods may block."""

    def arrival_count(self) -> int:
        """Changes with every arrival."""

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        """Until ``arrival_count`` differs from ``seen``, or the time is up."""

    def end_of(self, topic: str, queue_id: int) -> int:
        """The next queue offset to be written."""


Watch = tuple[str, int, int]
"""Topic, queue id, and the queue offset whose arrival is waited for."""
Place = tuple[str, int]
"""Topic and queue id."""
Future = asyncio.Future[None]


class Arrivals:
    """Wakes coroutines of one event loop. ``watch`` and ``interrupt`` are for that loop only."""

    def __init__(self, source: ArrivalSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._lock = threading.Condition()
        self._watches: dict[Place, dict[Future, int]] = {}
        """Who waits where, and for which queue offset."""
        self._futures: set[Future] = set()
        self._ending = False
        self._next_look = 0.0
        self.interrupted = False
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __len__(self) -> int:
        return len(self._futures)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the thread has ended; never started is fine."""
        with self._lock:
            self._ending = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join()

    def interrupt(self) -> None:
        """Wake every poll now and let no further one wait: the service is ending."""
        self.interrupted = True
        self._resolve(list(self._futures))

    def wake(self) -> None:
        """Wake every poll now, to look again."""
        self._resolve(list(self._futures))

    @contextmanager
    def watch(self, *watches: Watch) -> Iterator[Future]:
        """A future that is done once one of the queues reaches beyond its offset."""
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
        """What came since the caller looked: the thread may have counted it before this watch, and
        then sleeps until the next arrival."""
        try:
            return any(self._source.end_of(topic, queue) > at for topic, queue, at in watches)
        except OSError:
            return False  # the thread looks again, and says so

    def _forget(self, place: Place, future: Future) -> None:
        waiting = self._watches[place]
        waiting.pop(future, None)
        if not waiting:
            del self._watches[place]

    def _run(self) -> None:
        while self._has_watches():
            try:
                self._look()
            except Exception:
                log.exception("looking for arrivals failed")
                self._pause(WAIT_S)

    def _look(self) -> None:
        self._pause(self._next_look - time.monotonic())
        begun = time.monotonic()
        seen = self._source.arrival_count()
        with self._lock:
            places = {place: min(waiting.values()) for place, waiting in self._watches.items()}
        ends = {
            place: end
            for place, least in places.items()
            if (end := self._source.end_of(*place)) > least
        }
        took = time.monotonic() - begun
        self._next_look = begun + max(PACE_S, PART * took)
        if not self._tell(ends):
            self._source.wait_for_arrival(seen, WAIT_S)

    def _tell(self, ends: dict[Place, int]) -> bool:
        """Wake those who wait for what lies below these ends; whether there was anyone."""
        with self._lock:
            arrived = [
                future
                for place, end in ends.items()
                for future, offset in self._watches.get(place, {}).items()
                if end > offset and not future.done()
            ]
        if arrived:
            self._loop.call_soon_threadsafe(self._resolve, arrived)
        return bool(arrived)

    def _has_watches(self) -> bool:
        """Sleep while nobody waits; False at the end."""
        with self._lock:
            while not self._watches and not self._ending:
                self._lock.wait()
            return not self._ending

    def _pause(self, seconds: float) -> None:
        with self._lock:
            if not self._ending and seconds > 0:
                self._lock.wait(seconds)

    def _resolve(self, futures: list[Future]) -> None:
        """Some now, the rest once the loop has seen to others: each is answered on it."""
        for future in futures[:AT_ONCE]:
            if not future.done():
                future.set_result(None)
        if len(futures) > AT_ONCE:
            self._loop.call_soon(self._resolve, futures[AT_ONCE:])
