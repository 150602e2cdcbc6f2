"""Begins and decisions on the event loop: all that one turn of the loop brings are one append."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from mqstore.service import logs, problems
from mqstore.service.problems import Problem
from mqstore.storage.errors import StorageError, StoreFailed, TransactionDecided
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    Decide,
    DecisionResult,
    Taken,
    TransactionEngine,
)
from mqstore.writer.transactions.refusals import refusal_of

log = logs.get(__name__)

WAITING_MAX: Final = 4_096
"""Begins and decisions that wait at one time, for their append or for the disk."""
TURN_MAX: Final = 64
"""Begins and decisions of one append: some milliseconds of the event loop."""

_Result = BeginResult | DecisionResult | TransactionDecided
"""A result that names a decision or half messages, which must be durable before the reply."""
Settle = Callable[[int], Coroutine[Any, Any, None]]
"""Waits until the log is settled up to a physical offset. Raises FlushTimeout, StoreFailed."""


class _Job(msgspec.Struct, frozen=True):
    command: Begin | Decide
    result: asyncio.Future[Any]


class Turns:
    """Used on the event loop only; what has to wait for files or reads goes to a thread."""

    def __init__(
        self,
        engine: TransactionEngine,
        settle: Settle | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        """``settle`` None: what the page cache has is settled. ``failed`` is called with a defect
        of the engine, after which nothing can be begun or decided."""
        self._engine = engine
        self._settle = settle
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job] = deque()
        self._count = 0
        """Jobs without a result."""
        self._is_due = False
        self._is_ending = False
        self._in_thread: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()

    def begin(self, command: Begin) -> asyncio.Future[BeginResult]:
        """Resolves once the half messages count as stored. Raises Problem (503), and so does the
        future, or StorageError."""
        return self._put(command)

    def decide(self, command: Decide) -> asyncio.Future[DecisionResult]:
        """Resolves once the decision counts as stored. Raises as ``begin``."""
        return self._put(command)

    @property
    def is_ending(self) -> bool:
        """Whether nothing is begun or decided any more."""
        return self._is_ending

    async def stop(self) -> None:
        """Returns when no thread uses the engine and no job waits. Jobs that were not taken are
        rejected."""
        self._is_ending = True
        if self._in_thread is not None:
            await asyncio.wait({self._in_thread})
        self._reject(list(self._waiting), _ending())
        self._waiting.clear()
        if self._settling:
            await asyncio.wait(self._settling)

    def _put(self, command: Begin | Decide) -> asyncio.Future[Any]:
        if self._is_ending:
            raise _ending()
        if self._count >= WAITING_MAX:
            raise Problem(problems.OVERLOADED, f"{WAITING_MAX} begins and decisions wait already")
        job = _Job(command, self._loop.create_future())
        self._waiting.append(job)
        self._count += 1
        self._plan_turn()
        return job.result

    def _plan_turn(self) -> None:
        if self._waiting and not self._is_due and self._in_thread is None:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Take a batch, on the loop if nothing has to be waited for."""
        self._is_due = False
        if self._is_ending or not (jobs := self._next()):
            return
        begins, decisions = _sorted(jobs)
        try:
            taken = self._engine.take_at_hand(_commands(begins), _commands(decisions))
        except StorageError as error:
            self._reject(jobs, error)
        except Exception as error:
            self._break_off(jobs, error)
        else:
            if taken is None:
                self._in_thread = self._loop.create_task(self._take(begins, decisions))
                return
            self._deliver([*begins, *decisions], taken)
        self._plan_turn()

    async def _take(self, begins: list[_Job], decisions: list[_Job]) -> None:
        """Take a batch in a thread. Jobs that come meanwhile are the next batch."""
        jobs, commands = [*begins, *decisions], (_commands(begins), _commands(decisions))
        try:
            taken = await asyncio.to_thread(self._engine.take, *commands)
        except StorageError as error:
            self._reject(jobs, error)
        except Exception as error:
            self._break_off(jobs, error)
        else:
            self._deliver(jobs, taken)
        finally:
            self._in_thread = None
        self._plan_turn()

    def _next(self) -> list[_Job]:
        """The next batch. A decision about a transaction that the batch begins (a producer knows
        the id if the key is its own) is left for the batch behind it."""
        waiting, jobs, begun = self._waiting, list[_Job](), set[str]()
        while waiting and len(jobs) < TURN_MAX:
            command = waiting[0].command
            if isinstance(command, Begin):
                begun.add(command.key)
            elif command.key in begun:
                break
            jobs.append(waiting.popleft())
        return jobs

    def _deliver(self, jobs: list[_Job], taken: Taken) -> None:
        """Give each job its result, once the log is settled up to the last one's end."""
        results = [*taken[0], *taken[1]]
        done: list[tuple[_Job, _Result]] = []
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, StorageError) and not isinstance(result, TransactionDecided):
                self._reject([job], result)
            else:
                done.append((job, result))
        if self._settle is None:
            self._resolve(done)
        elif done:
            settling = self._loop.create_task(self._resolve_settled(self._settle, done))
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)

    async def _resolve_settled(self, settle: Settle, done: list[tuple[_Job, _Result]]) -> None:
        try:
            await settle(max(result.end for _, result in done))
        except StorageError as error:
            self._reject([job for job, _ in done], error)
        else:
            self._resolve(done)

    def _resolve(self, done: Sequence[tuple[_Job, _Result]]) -> None:
        decided = [(job, result) for job, result in done if isinstance(result, TransactionDecided)]
        for job, error in decided:
            self._reject([job], error)
        self._count -= len(done) - len(decided)
        for job, result in done:
            if not job.result.done():
                job.result.set_result(result)

    def _reject(self, jobs: Sequence[_Job], error: StorageError | Problem) -> None:
        refusal = error if isinstance(error, Problem) else refusal_of(error)
        self._count -= len(jobs)
        for job in jobs:
            if not job.result.done():
                job.result.set_exception(refusal)
                job.result.exception()  # else asyncio complains where the client has disconnected

    def _break_off(self, jobs: list[_Job], error: Exception) -> None:
        log.exception("the transaction engine failed", exc_info=error)
        why = "the transaction engine failed; whether this was done is not known"
        self._reject([*jobs, *self._waiting], StoreFailed(why))
        self._waiting.clear()
        self._failed(error)


def _sorted(jobs: list[_Job]) -> tuple[list[_Job], list[_Job]]:
    """Begins, and decisions."""
    begins = [job for job in jobs if isinstance(job.command, Begin)]
    return begins, [job for job in jobs if isinstance(job.command, Decide)]


def _commands(jobs: list[_Job]) -> list[Any]:
    return [job.command for job in jobs]


def _ending() -> Problem:
    return Problem(problems.SHUTTING_DOWN, "the service is shutting down")
