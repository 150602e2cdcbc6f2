"""Gives the lead up where this process can do nothing with it, and another one may be able to; ends
a process whose thread stands still.

A thread of its own looks: it must not stand still with what it watches. Looks are counted, not
seconds, as a process that was stopped and goes on has stood still in nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.leadership import Leadership, NotLeading
from mqstore.coordinator.worker import Worker
from mqstore.service import logs
from mqstore.service.health import STALL_S

LOOK_S: Final = 0.5

log = logs.get(__name__)


class StandsStill(CoordinatorError):
    """A thread neither ends nor moves: only another process can go on."""


class LeadWatch:
    """Made on the event loop. A lead that is of use to one shard is kept: the others' store-writer
    may be down for everybody."""

    def __init__(
        self,
        leadership: Leadership,
        workers: Iterable[Worker],
        patience_s: float,
        failed: Callable[[BaseException], None],
    ) -> None:
        """For ``patience_s`` every step may fail, or the event loop may stand still; ``failed`` as
        of a Worker, when one of them does not move for STALL_S."""
        self._leadership = leadership
        self._workers = list(workers)
        self._patience_s = patience_s
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._loop_stands = 0
        """Looks since the event loop has taken a turn."""
        self._stand: dict[Worker, tuple[object, int]] = {}
        """How far each worker is, and for how many looks."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lead-watch", daemon=True)
        self.given_up = 0
        """How often."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()

    def look(self) -> None:
        """Every LOOK_S."""
        self._look_at_loop()
        if [worker for worker in self._workers if self._stands_still(worker)]:
            error = StandsStill(f"a coordinator's thread has not moved for {STALL_S:g} s")
            self._give_up(str(error))
            self._loop.call_soon_threadsafe(self._failed, error)
        elif self._loop_stands * LOOK_S > self._patience_s:
            self._give_up("the event loop stands still")
        elif all(worker.failing_s >= self._patience_s for worker in self._workers):
            self._give_up(str(self._workers[0].trouble))

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            self.look()

    def _look_at_loop(self) -> None:
        self._loop_stands += 1
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._loop_turned)

    def _loop_turned(self) -> None:
        self._loop_stands = 0

    def _stands_still(self, worker: Worker) -> bool:
        moves, looks = self._stand.get(worker, (None, 0))
        looks = looks + 1 if moves == worker.moves else 0
        self._stand[worker] = worker.moves, looks
        return looks * LOOK_S >= STALL_S

    def _give_up(self, why: str) -> None:
        try:
            self._leadership.term()
        except NotLeading:
            return
        log.warning("the lead is given up", why=why)
        self.given_up += 1
        self._leadership.give_up(why)
