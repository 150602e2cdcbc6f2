"""The pages of a file that are in memory, and their eviction."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def evict(path: Path) -> None:
    """Drop a file's pages, unless a process has mapped and touched them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def is_in_memory(path: Path) -> bool:
    """Whether a file's first page is."""
    return bool(_pages(path, mmap.PAGESIZE)[0] & 1)


def pages_in_memory(path: Path) -> int:
    """How many of a file's pages are."""
    return sum(page & 1 for page in _pages(path, path.stat().st_size))


def _pages(path: Path, size: int) -> ctypes.Array[ctypes.c_ubyte]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        first = ctypes.c_ubyte.from_buffer(mapped)
        found = _libc.mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages
        )
        del first
    assert found == 0
    return pages
