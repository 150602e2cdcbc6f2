"""One run of the fuzzer in a process of its own: a crash of the kernel ends only this.

``python -m tests.fuzz.campaign --records N [--seed S]`` mutates N records, and a share of that
number of every other input. What fails is printed with the seed that shows it.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import Batches, IndexFiles, Records, Texts
from tests.fuzz.whole_stores import WholeStores

ROUND = 20_000
"""Records of one seed; a failure is found again by its round's seed alone."""
MEMORY_GROWTH_MAX = 128 << 20
SHARES = {"batches": 20, "index files": 40, "texts": 100, "whole stores": 1_000}
"""One input of each for so many records."""


def run_round(seed: int, records: int, root: Path) -> None:
    """Everything for one seed."""
    mutator = Mutator(seed)
    target = Records(mutator)
    for _ in range(records):
        target.one()
    others = {
        "batches": Batches(mutator),
        "index files": IndexFiles(mutator, root),
        "texts": Texts(mutator, root / "store"),
        "whole stores": WholeStores(mutator, root / "damaged"),
    }
    for name, other in others.items():
        for _ in range(records // SHARES[name]):
            other.one()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faulthandler.enable()
    began, memory, done = time.monotonic(), 0, 0
    for seed in range(arguments.seed, arguments.seed + -(-arguments.records // ROUND)):
        records = min(ROUND, arguments.records - done)
        # Before, so that a crash has told its seed.
        print(f"seed {seed}: {records} records", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="mqstore-fuzz-") as root:
            run_round(seed, records, Path(root))
        done += records
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        memory = memory or used
        if used - memory > MEMORY_GROWTH_MAX:
            print(f"memory grew by {used - memory} bytes", file=sys.stderr)
            return 1
    print(f"{done} mutated records in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
