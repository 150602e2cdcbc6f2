"""Crash states by the thousand, on all cores."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.crash_states import POINTS, Crash, CrashStateBroken, CrashStates, Replay

SHARDS: Final = 40
"""Parts of a workload that are examined apart, so that progress shows and all cores work."""
PART_STATES: Final = POINTS // SHARDS * len(Crash)
REPORT_EVERY_S: Final = 5.0


@dataclass
class Progress:
    """How far an exploration is."""

    states: int
    next_part: int
    """Number of the part with which another run continues; a seed has ``SHARDS`` parts."""
    done: int = 0
    broken: list[str] = field(default_factory=list)
    stopped: bool = False
    """By SIGINT or SIGTERM; parts that were under way do not count."""
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        rate = self.done / (time.monotonic() - self.began)
        left = max(0, self.states - self.done) / rate if rate else 0
        return f"{self.done} of {self.states} states, {len(self.broken)} broken, {rate:.0f}/s, " + (
            "stopped" if self.stopped else f"{left:.0f} s to go"
        )


def explore(
    seed: int, states: int, jobs: int, report: Callable[[str], None], *, first_part: int = 0
) -> Progress:
    """Examine at least so many states of the workloads from ``seed`` on, or until interrupted.

    ``first_part`` is the ``next_part`` of the exploration that this one goes on with.
    """
    progress = Progress(states, first_part)
    try:
        report(f"{states} crash states from SEED={seed} PART={first_part} on, {jobs} at a time")
        _explore(progress, seed, jobs, report)
    except KeyboardInterrupt:
        progress.stopped = True
    report(f"{progress}; what comes next: SEED={seed} PART={progress.next_part}")
    return progress


def _explore(progress: Progress, seed: int, jobs: int, report: Callable[[str], None]) -> None:
    first = progress.next_part
    parts = range(first, first - (-progress.states // PART_STATES))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_leave_interrupts) as pool:
        try:
            _follow(progress, [pool.submit(run_part, seed, part) for part in parts], report)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _follow(
    progress: Progress, futures: list[Future[tuple[int, str | None]]], report: Callable[[str], None]
) -> None:
    """In their order, so that what is done is what lies before ``next_part``."""
    reported_at = time.monotonic()
    for each in futures:
        examined, failure = each.result()
        progress.done += examined
        progress.next_part += 1
        if failure is not None:
            progress.broken.append(failure)
            report(failure)
        if time.monotonic() - reported_at >= REPORT_EVERY_S:
            reported_at = time.monotonic()
            report(str(progress))


def _leave_interrupts() -> None:
    """Leave interrupts to the process that reports the progress."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run_part(first_seed: int, part: int) -> tuple[int, str | None]:
    """The number of states that were examined, and what was wrong with the last one, if."""
    logging.disable(logging.CRITICAL)
    seed, shard = first_seed + part // SHARDS, part % SHARDS
    states = CrashStates(Replay(seed), shard=shard, shards=SHARDS)
    try:
        return states.run(), None
    except CrashStateBroken as broken:
        return states.states, str(broken)
