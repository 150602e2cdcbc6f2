"""Memory figures of this process, from the operating system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def locked_kib() -> int:
    """All of it that is locked: VmLck."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return _kib(iter(lines), "VmLck:")


def resident_kib(path: Path) -> int:
    """The pages of a mapped file that are in this process's page table."""
    return _kib(_map_of(path), "Rss:")


def _map_of(path: Path) -> Iterator[str]:
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return lines
    raise AssertionError(f"{path} is not mapped")


def _kib(lines: Iterator[str], name: str) -> int:
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
