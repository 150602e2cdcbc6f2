"""Servers under measurement: where they answer, and what they cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.bench import latencies
from tests.bench.harness import Metric


@dataclass(frozen=True)
class Server:
    """Processes that answer under an address: a URL of ours, a port of the peer's."""

    address: str
    process_ids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Processor time so far, by Linux's clock of another process (clock_getcpuclockid)."""
        return sum(time.clock_gettime(~each << 3 | 2) for each in self.process_ids)


def metrics(name: str, unit: str, costs: dict[str, str], record_size: int | None) -> list[Metric]:
    """The metrics of a row: its rate, ``costs`` by key, and latencies; ``unit`` names one counted
    thing."""
    rate = Metric("rate", name, f"{unit}s/s", record_size=record_size)
    each = [
        Metric(key, f"{name}, {what}", f"µs a {unit}", higher_is_better=False)
        for key, what in costs.items()
    ]
    return [rate, *each, *latencies.metrics(name)]
