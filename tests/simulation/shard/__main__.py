"""``python -m tests.simulation.shard SCHEDULES=100000 SEED=…``: schedules of a shard.

They begin at SEED, by default a random one. SEED alone runs that one schedule, and prints its
faults and leaders. With STORES=1 the replicas have real stores on simulated disks. Exit 0 when all
kept what was promised, 1 when one did not, 2 for a wrong argument.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.simulation.shard.memory_log import MemoryLog
from tests.simulation.shard.schedule import Schedule
from tests.simulation.shard.schedules import ScheduleBroken, run_all
from tests.simulation.shard.store_log import StoreLog

SCHEDULES_DEFAULT: Final = 10_000
PART: Final = 50
"""Schedules that one process runs at a time."""
Kind = type[MemoryLog] | type[StoreLog]
USAGE: Final = "usage: python -m tests.simulation.shard [SCHEDULES=n] [SEED=n] [STORES=1] [JOBS=n]"


def main(arguments: list[str]) -> int:
    try:
        named = dict(each.split("=", 1) for each in arguments)
        seed, count = named.pop("SEED", ""), named.pop("SCHEDULES", "")
        jobs = int(named.pop("JOBS", "") or os.cpu_count() or 1)
        first = int(seed or random.SystemRandom().randrange(10**9))
        schedules = int(count or SCHEDULES_DEFAULT)
        kind = StoreLog if named.pop("STORES", "") else MemoryLog
        if named:
            raise ValueError(f"unknown {', '.join(named)}")
    except ValueError as error:
        _print_line(f"{error}; {USAGE}")
        return 2
    return _show(first, kind) if seed and not count else _run(first, schedules, jobs, kind)


def _show(seed: int, kind: Kind) -> int:
    schedule = Schedule(seed, kind)
    for fault in schedule.faults:
        _print_line(str(fault))
    try:
        schedule.run()
    finally:
        ledger = schedule.ledger
        for epoch, leader in ledger.leaders.items():
            _print_line(f"epoch {epoch}: {leader}")
        _print_line(f"{len(ledger.replicated)} of {len(ledger.put)} messages acknowledged")
        for name, volume in schedule.volumes.items():
            kept = [f"{epoch}.{number}" for epoch, number in volume.log.records.values()]
            _print_line(f"{name}: {' '.join(kept)}")
    return 0


def _run(first: int, schedules: int, jobs: int, kind: Kind) -> int:
    began, broken, acknowledged = time.monotonic(), 0, 0
    parts = [
        range(start, min(start + PART, first + schedules))
        for start in range(first, first + schedules, PART)
    ]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(run_all, part, kind) for part in parts]:
            try:
                acknowledged += future.result()
            except ScheduleBroken as error:
                broken += 1
                _print_line(str(error))
    _print_line(
        f"{schedules} schedules from SEED={first} on, {acknowledged} messages acknowledged, "
        f"{broken} parts broken, {time.monotonic() - began:.0f} s"
    )
    return 1 if broken else 0


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
