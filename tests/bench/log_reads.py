"""The log's files read from the disk, one after another: the limit of what reads a whole log."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from mqstore.storage.paths import StorePaths
from tests.bench.failures import SideError
from tests.bench.harness import Figures
from tests.bench.memory import MIB
from tests.bench.stores import Filled

SAMPLED_EACH: Final = 4 * MIB
CACHED_MAX: Final = 0.25
"""The part of the samples that may still be in the page cache."""
TRIES: Final = 50
PAUSE_S: Final = 0.1


def drop(directory: Path) -> None:
    """Drop from the page cache what no process has mapped of the files of a directory."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def evict(directory: Path) -> None:
    """Drop the files of a directory from the page cache; they are on the disk.

    Waits for a peer that unmaps them. Raises SideError when they stay there.
    """
    for _ in range(TRIES):
        drop(directory)
        share = _cached_share(directory)
        if share <= CACHED_MAX:
            return
        time.sleep(PAUSE_S)
    raise SideError(f"{share:.0%} of {directory} stays in memory")


def _cached_share(directory: Path) -> float:
    samples = []
    for path in directory.iterdir():
        with path.open("rb") as file:
            end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)  # of what was written
            samples += [_is_cached(file.fileno(), at) for at in range(0, end, SAMPLED_EACH)]
    return sum(samples) / max(len(samples), 1)


def _is_cached(descriptor: int, offset: int) -> bool:
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except OSError:  # it would wait for the disk; or the file system does not know
        return False
    return True


def from_disk(filled: Filled) -> Figures:
    """The rate of one pass over the log, which is not in the page cache."""
    directory = StorePaths(filled.ours).commit_log
    evict(directory)
    buffer, left = bytearray(MIB), filled.log_bytes
    began = time.perf_counter()
    for path in sorted(directory.iterdir()):
        with path.open("rb", buffering=0) as file:
            while left > 0 and (count := file.readinto(buffer)):
                left -= count
    return {"rate": filled.log_bytes / (time.perf_counter() - began) / MIB}
