"""The samples that a soak takes each second, and whether they stayed flat.

A series is flat when its median over the last third of the run is at most that over the middle
third, times a growth, plus a room. In the first third windows and caches fill.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.memory import MIB
from tests.services.service_processes import Run
from tests.soak.load import Latencies


@dataclass(frozen=True)
class Group:
    """Series of one unit, with what they may grow."""

    unit: str
    growth_max: float
    room: float


PRIVATE, RSS, HANDLES, LOG = "private memory", "RSS", "file handles", "log on the disk"
GROUPS: Final[Mapping[str, Group]] = {
    PRIVATE: Group("MiB", 1.05, 8),
    RSS: Group("MiB", 1.10, 32),
    HANDLES: Group("handles", 1.0, 16),
    "p50": Group("ms", 1.25, 0.2),
    "p99": Group("ms", 1.5, 2),
    LOG: Group("MiB", 1.25, 256),
}
SHARES: Final = {"p50": 0.5, "p99": 0.99}

Values = dict[str, dict[str, float]]
"""By group and series."""


@dataclass(frozen=True)
class Sample:
    """The values of one second."""

    seconds: float
    """Since the begin of the run."""
    operations: int
    """In this second."""
    values: Values


class Sampler:
    """Samples the services of a run. For one thread."""

    def __init__(self, run: Run, store: Path) -> None:
        self._processes = {"store-writer": run.child("writer"), "query": run.child("query")}
        self._log = store / "commitlog"

    def sample(self, seconds: float, latencies: Latencies) -> Sample:
        """The processes as they are now, with the latencies of the last second."""
        status = {name: _status(each) for name, each in self._processes.items()}
        values: Values = {
            PRIVATE: {name: found["RssAnon"] / 1024 for name, found in status.items()},
            RSS: {name: found["VmRSS"] / 1024 for name, found in status.items()},
            HANDLES: {
                name: sum(1 for _ in Path(f"/proc/{each}/fd").iterdir())
                for name, each in self._processes.items()
            },
            LOG: {"log": _blocks(self._log) / MIB},
        }
        for name, share in SHARES.items():
            values[name] = {
                str(kind): sorted(each)[int(len(each) * share)] * 1000
                for kind, each in latencies.items()
            }
        return Sample(seconds, sum(map(len, latencies.values())), values)


def series(samples: Sequence[Sample]) -> Iterator[tuple[str, str, list[tuple[float, float]]]]:
    """Each series: its group, its name, and its values by second."""
    for group in GROUPS:
        for name in sorted({name for each in samples for name in each.values[group]}):
            yield (
                group,
                name,
                [
                    (each.seconds, each.values[group][name])
                    for each in samples
                    if name in each.values[group]
                ],
            )


def growths(samples: Sequence[Sample]) -> list[str]:
    """The series that are above their allowance in the last third of the run, in words."""
    total = samples[-1].seconds
    found = []
    for group, name, points in series(samples):
        middle = [value for at, value in points if total / 3 < at <= total * 2 / 3]
        last = [value for at, value in points if total * 2 / 3 < at]
        if not middle or not last:
            found.append(f"{group} of {name}: too few values")
            continue
        allowed = GROUPS[group]
        before, after = statistics.median(middle), statistics.median(last)
        limit = before * allowed.growth_max + allowed.room
        if after > limit:
            found.append(
                f"{group} of {name}: {after:.4g} {allowed.unit} in the last third, {before:.4g} in"
                f" the middle third; at most {limit:.4g} is allowed"
            )
    return found


def _status(process_id: int) -> dict[str, int]:
    """The memory of a process in KiB."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    fields = (line.split(":", 1) for line in lines)
    return {name: int(value.split()[0]) for name, value in fields if name in ("RssAnon", "VmRSS")}


def _blocks(directory: Path) -> int:
    """Bytes of disk blocks of a directory's files, some of which retention may take meanwhile."""
    total = 0
    for path in directory.iterdir():
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total
