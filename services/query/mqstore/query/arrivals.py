"""Long polls: one thread waits on the state page's futex and tells coroutines of arrivals.

A poll first registers, then looks, then waits, so that nothing that arrives in between is missed.
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


class Arrivals:
    """Wakes coroutines of one event loop. ``watch`` and ``interrupt`` are for that loop only."""

    def __init__(self, source: ArrivalSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._lock = threading.Condition()
        self._watches: dict[asyncio.Future[None], Watch] = {}
        self._ending = False
        self._looked_at = -PACE_S
        self.interrupted = False
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __len__(self) -> int:
        return len(self._watches)

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
        self._resolve(list(self._watches))

    @contextmanager
    def watch(self, topic: str, queue_id: int, offset: int) -> Iterator[asyncio.Future[None]]:
        """A future that is done once the queue reaches beyond ``offset``."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.interrupted:
            future.set_result(None)
        with self._lock:
            self._watches[future] = (topic, queue_id, offset)
            self._lock.notify()
        try:
            yield future
        finally:
            with self._lock:
                self._watches.pop(future, None)

    def _run(self) -> None:
        while self._has_watches():
            try:
                self._look()
            except Exception:
                log.exception("looking for arrivals failed")
                self._pause(WAIT_S)

    def _look(self) -> None:
        self._pause(self._looked_at + PACE_S - time.monotonic())
        self._looked_at = time.monotonic()
        seen = self._source.arrival_count()
        with self._lock:
            watches = list(self._watches.items())
        ends = {place: self._source.end_of(*place) for place in {w[:2] for _, w in watches}}
        arrived = [future for future, (topic, q, offset) in watches if ends[topic, q] > offset]
        if arrived:
            self._loop.call_soon_threadsafe(self._resolve, arrived)
        else:
            self._source.wait_for_arrival(seen, WAIT_S)

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

    def _resolve(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)
