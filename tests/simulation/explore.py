"""Crash states by the thousand, on all cores."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

from tests.simulation.crash_states import POINTS, Crash, CrashStateBroken, CrashStates, Replay

SHARDS: Final = 20
"""Parts of a workload that are examined apart, so that progress shows and all cores work."""
PART_STATES: Final = POINTS // SHARDS * len(Crash)
REPORT_EVERY_S: Final = 5.0

Part = tuple[int, int]
"""A seed and a shard of its workload."""


@dataclass
class Progress:
    """How far an exploration is."""

    states: int
    done: int = 0
    broken: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        rate = self.done / (time.monotonic() - self.began)
        left = max(0, self.states - self.done) / rate if rate else 0
        return (
            f"{self.done} of {self.states} states, {len(self.broken)} broken, "
            f"{rate:.0f}/s, {left:.0f} s to go"
        )


def explore(seed: int, states: int, jobs: int, tell: Callable[[str], None]) -> Progress:
    """Examine at least so many states of the workloads from ``seed`` on."""
    progress = Progress(states)
    parts = islice(_parts(seed), -(-states // PART_STATES))
    told = time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for each in as_completed([pool.submit(run_part, part) for part in parts]):
            examined, failure = each.result()
            progress.done += examined
            if failure is not None:
                progress.broken.append(failure)
                tell(failure)
            if time.monotonic() - told >= REPORT_EVERY_S:
                told = time.monotonic()
                tell(str(progress))
    tell(str(progress))
    return progress


def _parts(seed: int) -> Iterator[Part]:
    return ((number, shard) for number in count(seed) for shard in range(SHARDS))


def run_part(part: Part) -> tuple[int, str | None]:
    """The number of states that were examined, and what was wrong with the last one, if."""
    logging.disable(logging.CRITICAL)
    seed, shard = part
    states = CrashStates(Replay(seed), shard=shard, shards=SHARDS)
    try:
        return states.run(), None
    except CrashStateBroken as broken:
        return states.states, str(broken)
