"""The most private memory that processes had while something ran: mapped files are not in it.

`python -m tests.bench.memory PID…` samples it until its input ends, and prints the peak in MiB: a
process of its own, since a thread would take the interpreter lock from what is measured.
"""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

SAMPLE_S: Final = 0.02
MIB: Final = 1 << 20


class PeakMemory:
    """Samples RssAnon of processes around a block; ``peak_mib`` is then the largest, in MiB."""

    def __init__(self, process_ids: Sequence[int]) -> None:
        self._process_ids = process_ids
        self.peak_mib = 0.0

    def __enter__(self) -> PeakMemory:
        self._sampler = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.memory", *map(str, self._process_ids)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._sampler.stdout is not None
        self._sampler.stdout.readline()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        answer, _ = self._sampler.communicate()
        self.peak_mib = float(answer)


def private_bytes(process_ids: Iterable[int]) -> int:
    """RssAnon of processes, in bytes."""
    return sum(_private_bytes(each) for each in process_ids)


def _private_bytes(process_id: int) -> int:
    """0 for one that has ended, as Spark's workers do by themselves."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line for line in lines if line.startswith("RssAnon:")]
    return int(found[0].split()[1]) * 1024 if found else 0


def main(process_ids: list[int]) -> None:
    print("ready", flush=True)
    peak = private_bytes(process_ids)
    while not select.select([sys.stdin], [], [], SAMPLE_S)[0]:
        peak = max(peak, private_bytes(process_ids))
    print(max(peak, private_bytes(process_ids)) / MIB)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]])
