"""The most private memory that a process had while something ran: mapped files are not in it.

`python -m tests.bench.memory PID` samples it until its input ends, and prints the peak in MiB: a
process of its own, since a thread would take the interpreter lock from what is measured.
"""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

SAMPLE_S: Final = 0.02
MIB: Final = 1 << 20


class PeakMemory:
    """Samples RssAnon of a process around a block; ``peak_mib`` is then its largest, in MiB."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self.peak_mib = 0.0

    def __enter__(self) -> PeakMemory:
        self._sampler = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.memory", str(self._process_id)],
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


def private_bytes(process_id: int) -> int:
    """RssAnon of a process, in bytes."""
    status = Path(f"/proc/{process_id}/status")
    for line in status.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{status} has no RssAnon")


def main(process_id: int) -> None:
    print("ready", flush=True)
    peak = private_bytes(process_id)
    while not select.select([sys.stdin], [], [], SAMPLE_S)[0]:
        peak = max(peak, private_bytes(process_id))
    print(max(peak, private_bytes(process_id)) / MIB)


if __name__ == "__main__":
    main(int(sys.argv[1]))
