"""Servers under measurement: where they answer, and what they cost."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    """Processes that answer under an address: a URL of ours, a port of the peer's."""

    address: str
    process_ids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Processor time so far, by Linux's clock of another process (clock_getcpuclockid)."""
        return sum(time.clock_gettime(~each << 3 | 2) for each in self.process_ids)
