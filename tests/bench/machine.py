"""The machine of a run, its load when the run began, and who else used its processors meanwhile."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.bench import rocketmq

_PR_SET_CHILD_SUBREAPER: Final = 36
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
"""Fields of the processors' line in /proc/stat."""


def facts() -> dict[str, str]:
    """The facts of a machine on which a run's figures depend."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "began": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{pages / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
        "load": " ".join(f"{each:.1f}" for each in os.getloadavg()),
    }


def sentence(found: Mapping[str, str]) -> str:
    """The facts in words."""
    return (
        f"{found['began']}; {found['cores']} cores ({found['processor']}), {found['memory']} of "
        f"memory, Linux {found['kernel']}, Python {found['python']}, Java: {found['java']}; "
        f"load at the start (1, 5, 15 minutes): {found['load']}."
    )


@dataclass(frozen=True)
class Use:
    """Seconds of all processors: in total, of this process with its descendants, of others."""

    total_s: float
    ours_s: float
    others_s: float
    """Seconds of other processes, and of the kernel's own threads."""
    stolen_s: float
    """Given to other machines by the hypervisor."""

    @classmethod
    def now(cls) -> Use:
        """The use since the machine started; ``ours_s`` since this process started."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(each) / _TICKS for each in fields]
        ours = _ours_s()
        busy = sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL]
        return cls(sum(ticks), ours, busy - ours, ticks[_STEAL])

    def since(self, before: Use) -> Use:
        """The use from ``before`` to this one."""
        return Use(
            self.total_s - before.total_s,
            self.ours_s - before.ours_s,
            max(0.0, self.others_s - before.others_s),
            self.stolen_s - before.stolen_s,
        )

    def sentence(self) -> str:
        """The shares in words."""
        total = max(self.total_s, 1 / _TICKS)
        return (
            f"Processors: {self.ours_s / total:.0%} used by the run, {self.others_s / total:.0%} "
            f"by other processes, {self.stolen_s / total:.0%} stolen by the hypervisor."
        )


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent has ended.

    Their processor time then counts as that of the run: services are started by a process that
    does not wait for them when it is killed.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(process_id: int) -> Iterator[int]:
    """The ids of a process's descendants, also of those that have ended and were not waited for."""
    with suppress(OSError):
        for task in Path(f"/proc/{process_id}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def _ours_s() -> float:
    """Processor time of this process and its descendants."""
    own, waited_for = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum((*own[:2], *waited_for[:2])) + sum(map(_cpu_s, descendants(os.getpid())))


def _cpu_s(process_id: int) -> float:
    """Processor time of a process and of its children that it waited for."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / _TICKS


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    if rocketmq.missing() is not None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0]
