"""The short way of begins and decisions: on the event loop, where nothing but their append is to be
waited for. All that wait together are one append."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mqstore.coordinator.coordinator import Coordinator, Taken
from mqstore.coordinator.errors import CoordinatorError, KeysKnown, NotLoaded
from mqstore.coordinator.jobs import (
    BATCH_MAX,
    Job,
    Results,
    begins_of,
    decisions_of,
    deliver,
)
from mqstore.coordinator.ledger import Steps
from mqstore.coordinator.log import SoonLog


class Floor:
    """Whose turn it is to use the coordinator: the thread's, which goes first, or the loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_wanted = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """For the thread: waits until the loop's append is answered."""
        self._is_wanted = True
        with self._lock:
            self._is_wanted = False
            yield

    def try_take(self) -> bool:
        """For the loop: False while the thread has it, or waits for it."""
        return not self._is_wanted and self._lock.acquire(blocking=False)

    def release(self) -> None:
        """After ``try_take``."""
        self._lock.release()


class Lane:
    """Used on the event loop only."""

    def __init__(
        self,
        coordinator: Coordinator,
        log: SoonLog,
        floor: Floor,
        *,
        is_open: Callable[[], bool],
        longer_way: Callable[[list[Job]], None],
        taken: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``is_open`` says whether what is known counts just now; jobs that need more than an
        append go the ``longer_way``; ``taken`` is called after each append, before anybody else may
        use the coordinator; ``failed`` is as of a Worker."""
        self._coordinator = coordinator
        self._log = log
        self._floor = floor
        self._is_open = is_open
        self._longer_way = longer_way
        self._taken = taken
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job] = deque()
        self._is_due = False
        self._appending: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, job: Job) -> None:
        """It is taken with all others that come in this turn of the loop, or while an append is
        under way."""
        self._waiting.append(job)
        if not self._is_due and self._appending is None:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if not self._waiting:
            return
        if not self._floor.try_take():
            self._longer_way(self._next(len(self._waiting)))
            return
        at_hand, others = self._sorted(self._next(BATCH_MAX))
        if others:
            self._longer_way(others)
        self._appending = self._loop.create_task(self._take(at_hand))

    def _next(self, count: int) -> list[Job]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(count, len(waiting)))]

    def _sorted(self, jobs: list[Job]) -> tuple[list[Job], list[Job]]:
        """Those that can be taken here, and the others."""
        at_hand: list[Job] = []
        others: list[Job] = []
        is_open = self._is_open()
        for job in jobs:
            can_be = is_open and not callable(job.ask) and self._coordinator.is_at_hand(job.ask)
            (at_hand if can_be else others).append(job)
        return at_hand, others

    async def _take(self, jobs: list[Job]) -> None:
        try:
            results = await self._results(jobs)
            self._taken()
        except Exception as error:
            refusal = NotLoaded("the coordinator failed; whether this was done is not known")
            deliver([(job, refusal) for job in [*jobs, *self._next(len(self._waiting))]])
            self._failed(error)
            raise
        finally:
            self._floor.release()
            self._appending = None
        known = [job for job, result in results if isinstance(result, KeysKnown)]
        if known:
            self._longer_way(known)
        deliver([each for each in results if not isinstance(each[1], KeysKnown)])
        self._turn()

    async def _results(self, jobs: list[Job]) -> Results:
        begins, decisions = begins_of(jobs), decisions_of(jobs)
        askers = [job for job, _ in [*begins, *decisions]]
        asks = [ask for _, ask in begins], [ask for _, ask in decisions]
        steps = self._coordinator.taking(*asks, reads=False)
        try:
            begun, decided = await self._followed(steps)
        except CoordinatorError as error:
            return [(job, error) for job in askers]
        return list(zip(askers, [*begun, *decided], strict=True))

    async def _followed(self, steps: Steps[Taken]) -> Taken:
        """As ``Ledger.follow``."""
        try:
            append = next(steps)
            while True:
                try:
                    placed = await self._log.append_soon(append)
                except CoordinatorError as error:
                    append = steps.throw(error)
                else:
                    append = steps.send(placed)
        except StopIteration as end:
            found: Taken = end.value
            return found
