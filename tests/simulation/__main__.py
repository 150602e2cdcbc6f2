"""``python -m tests.simulation STATES=1000000 SEED=…``: crash states as many as one likes.

Without SEED the workloads start at a random seed; SEED=SEED.POINT.CRASH shows one state again. The
last line names the SEED and PART with which another run goes on, so that runs add up.
Exit 0 when all kept what was promised, 1 when one did not, 2 for a wrong argument, 130 when it was
stopped (SIGINT, SIGTERM), which says how far it came.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from typing import Final

from tests.simulation.crash_states import CrashStates, Replay
from tests.simulation.explore import explore

STATES_DEFAULT: Final = 20_000
STOPPED: Final = 130
USAGE: Final = (
    "usage: python -m tests.simulation [STATES=n] [SEED=seed[.point[.crash]]] [PART=n] [JOBS=n]"
)


def main(arguments: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    try:
        named = dict(each.split("=", 1) for each in arguments)
        states = int(named.pop("STATES", "") or STATES_DEFAULT)
        jobs = int(named.pop("JOBS", "") or os.cpu_count() or 1)
        first_part = int(named.pop("PART", "") or 0)
        replay = Replay.parse(named.pop("SEED", "") or str(random.SystemRandom().randrange(10**9)))
        if named:
            raise ValueError(f"unknown {', '.join(named)}")
    except ValueError as error:
        _print_line(f"{error}; {USAGE}")
        return 2
    if replay.point is not None:
        _print_line(f"{CrashStates(replay).run()} states of {replay} keep what was promised")
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    done = explore(replay.seed, states, jobs, _print_line, first_part=first_part)
    if done.broken:
        return 1
    return STOPPED if done.stopped else 0


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
