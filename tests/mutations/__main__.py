"""``python -m tests.mutations [NUMBER ...] [--states N] [--every N]``: is what breaks noticed?

Each mutation runs in a process of its own: over crash states from seed 1000 on, every 20th place,
until one is broken, or with the test that is to show it. Numbers are those of the list that
``--list`` prints; without any, all run. Exit 1 when one was not noticed.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.mutations.breaking import Mutation, break_this_process
from tests.mutations.table import MUTATIONS

ROOT: Final = Path(__file__).parents[2]
FIRST_SEED: Final = 1_000
NOT_NOTICED: Final = 1


def main() -> int:
    arguments = _arguments()
    numbers = arguments.numbers or range(len(MUTATIONS))
    if arguments.list:
        for number in numbers:
            print(f"{number:3} {MUTATIONS[number].what}")
        return 0
    if arguments.here:
        return _try(MUTATIONS[arguments.numbers[0]], arguments.states, arguments.every)
    return max(_try_apart(number, arguments) for number in numbers)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("numbers", type=int, nargs="*", metavar="NUMBER", help="default: all")
    parser.add_argument("--states", type=int, default=1_000, help="crash states at most")
    parser.add_argument("--every", type=int, default=20, help="which places to crash at")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not all(0 <= number < len(MUTATIONS) for number in arguments.numbers):
        parser.error(f"a NUMBER is one of 0 to {len(MUTATIONS) - 1}")
    return arguments


def _try_apart(number: int, arguments: argparse.Namespace) -> int:
    options = [f"--states={arguments.states}", f"--every={arguments.every}", "--here"]
    command = [sys.executable, "-m", "tests.mutations", str(number), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last_line = (done.stdout.splitlines() or done.stderr.splitlines() or ["nothing was said"])[-1]
    print(f"{number:3} {MUTATIONS[number].what}: {last_line[:300]}", flush=True)
    return done.returncode


def _try(mutation: Mutation, states: int, every: int) -> int:
    break_this_process(mutation)
    if mutation.shown_by is not None:
        return _fails(mutation.shown_by)
    return _breaks_a_state(states, every)


def _fails(test: str) -> int:
    code = pytest.main(["-q", "-x", "--no-header", "-m", "not nightly", test])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"{test} did not run: {code!r}")
    noticed = code == pytest.ExitCode.TESTS_FAILED
    print(f"{'noticed' if noticed else 'NOT NOTICED'} by {test}")
    return 0 if noticed else NOT_NOTICED


def _breaks_a_state(states: int, every: int) -> int:
    # Only now: it imports the engine.
    from tests.simulation.crash_states import CrashStateBroken, CrashStates, Replay

    logging.disable(logging.CRITICAL)
    done, seed = 0, FIRST_SEED
    while done < states:
        workload = CrashStates(Replay(seed), shards=every)
        try:
            done += workload.run()
        except CrashStateBroken as broken:
            print(f"noticed after {done + workload.states}: {broken}")
            return 0
        seed += 1
    print(f"NOT NOTICED within {done}")
    return NOT_NOTICED


if __name__ == "__main__":
    sys.exit(main())
