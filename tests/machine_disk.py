"""Tests do not depend on how full the machine's disk is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from mqstore.storage.seams import DiskUsage
from mqstore.storage.system.posix_files import PosixFileSystem

LARGE_BYTES: Final = 1 << 30
"""Minimum size of the machine's own volumes: those that tests fill are smaller."""


def show_large_volumes_half_empty() -> None:
    """Have stores of this process and of its forks find at most half of a large volume in use.

    Its free bytes stay true. Processes that are no forks have settings for a full disk
    (``service_processes.ANY_DISK``).
    """
    measure = PosixFileSystem.usage

    def usage(self: PosixFileSystem, path: Path) -> DiskUsage:
        found = measure(self, path)
        if found.total < LARGE_BYTES:
            return found
        return dataclasses.replace(found, total=max(found.total, 2 * found.used))

    PosixFileSystem.usage = usage  # type: ignore[method-assign] # the one seam of all stores
