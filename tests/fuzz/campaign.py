"""One run of the fuzzer, in a process of its own: a read outside an input ends it.

``python -m tests.fuzz --records N [--seed S]`` mutates N records, and a share of that number of
every other input. Each round's seed is printed before it begins: that seed alone shows what failed.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.batches import Batches
from tests.fuzz.begin_requests import BeginRequests
from tests.fuzz.json_requests import JsonRequests
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import IndexFiles, Records, Target, Texts
from tests.fuzz.whole_stores import WholeStores

ROUND = 20_000
"""Records of one seed; a failure is found again by its round's seed alone."""
MEMORY_GROWTH_MAX = 128 << 20
SHARES = {
    "batches": 10,
    "begins": 10,
    "index files": 40,
    "JSON requests": 10,
    "texts": 100,
    "whole stores": 1_000,
}
"""One input of each for so many records."""


def run_round(seed: int, records: int, root: Path) -> None:
    """Everything for one seed."""
    mutator = Mutator(seed)
    target = Records(mutator)
    for _ in range(records):
        target.one()
    others: dict[str, Target] = {
        "batches": Batches(mutator),
        "begins": BeginRequests(mutator),
        "index files": IndexFiles(mutator, root),
        "JSON requests": JsonRequests(mutator),
        "texts": Texts(mutator, root / "store"),
        "whole stores": WholeStores(mutator, root / "damaged"),
    }
    for name, other in others.items():
        for _ in range(records // SHARES[name]):
            other.one()


def run(records: int, seed: int) -> int:
    """Mutate so many records, and their share of everything else; the process's exit code."""
    faulthandler.enable()
    began, memory, done = time.monotonic(), 0, 0
    for number in range(seed, seed + -(-records // ROUND)):
        count = min(ROUND, records - done)
        # Before the round, so that the seed of a crash is printed.
        print(f"seed {number}: {count} records", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="mqstore-fuzz-") as root:
            run_round(number, count, Path(root))
        done += count
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        memory = memory or used
        if used - memory > MEMORY_GROWTH_MAX:
            print(f"memory grew by {used - memory} bytes", file=sys.stderr)
            return 1
    print(f"{done} mutated records in {time.monotonic() - began:.0f} s")
    return 0
