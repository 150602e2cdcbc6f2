"""Index rebuilds by Spark beside the writer, one in each third of the run.

They have the lowest priority, since Spark stands for other machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.failures import SideError

NICER: Final = 39
"""From any niceness to the highest one."""
PER_RUN: Final = 3


@dataclass(frozen=True)
class Rebuilt:
    """A rebuild that has ended; times in seconds of the run."""

    begin: float
    end: float
    records: int


class Rebuilds:
    """Starts a rebuild whenever one is due and the one before has ended. For one thread."""

    def __init__(self, store: Path, writer_url: str, run_s: float) -> None:
        self._shard = f"{store},{writer_url}"
        self._report = store.with_name("rebuild.json")
        self._log = store.with_name("rebuild.log")
        self._interval = run_s / PER_RUN
        self._due = 0.0
        self._running: tuple[float, subprocess.Popen[bytes]] | None = None
        self.ended: list[Rebuilt] = []

    def step(self, now: float) -> None:
        """Collect a rebuild that has ended, and start the next one when it is due.

        ``now`` is the time of the run in seconds. Raises SideError when a rebuild has failed.
        """
        if self._running is not None and self._running[1].poll() is not None:
            self._collect(now)
        if self._running is None and len(self.ended) < PER_RUN and now >= self._due:
            self._start(now)

    def finish(self, began: float) -> None:
        """Wait for the running rebuild; ``began`` is the monotonic time of the run's begin.

        Raises SideError.
        """
        if self._running is not None:
            self._running[1].wait()
            self._collect(time.monotonic() - began)

    def kill(self) -> None:
        """End a rebuild that still runs."""
        if self._running is not None:
            self._running[1].kill()
            self._running[1].wait()

    def _start(self, now: float) -> None:
        command = ["nice", "-n", str(NICER), sys.executable, "-m", "mqstore.jobs.index_rebuild"]
        command += [self._shard, "--disk-max-used-space-ratio", "100"]
        with self._report.open("wb") as report, self._log.open("wb") as log:
            self._running = now, subprocess.Popen(command, stdout=report, stderr=log)
        self._due += self._interval

    def _collect(self, now: float) -> None:
        assert self._running is not None
        (begin, process), self._running = self._running, None
        report = self._report.read_text()
        if process.returncode:
            said = self._log.read_text()[-2000:]
            raise SideError(f"the index rebuild ended with {process.returncode}: {report} {said}")
        (shard,) = json.loads(report)["shards"]
        self.ended.append(Rebuilt(begin, now, shard["records"]))
