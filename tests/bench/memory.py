"""The most private memory that a process had while something ran: mapped files are not in it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Final

SAMPLE_S: Final = 0.02
MIB: Final = 1 << 20


class PeakMemory:
    """Samples RssAnon of a process around a block; ``peak_mib`` is its largest, in MiB."""

    def __init__(self, process_id: int) -> None:
        self._status = Path(f"/proc/{process_id}/status")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)
        self.peak_mib = 0.0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        self._sample()
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        self.peak_mib = max(self.peak_mib, private_bytes(self._status) / MIB)


def private_bytes(status: Path) -> int:
    """RssAnon of a ``/proc/PID/status``, in bytes."""
    for line in status.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{status} has no RssAnon")
