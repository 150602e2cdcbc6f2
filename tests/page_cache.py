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
    page = mmap.PAGESIZE
    with path.open("r+b") as file, mmap.mmap(file.fileno(), page, mmap.MAP_PRIVATE) as mapped:
        pages = (ctypes.c_ubyte * 1)()
        first = ctypes.c_ubyte.from_buffer(mapped)
        found = _libc.mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(page), pages
        )
        del first
    assert found == 0
    return bool(pages[0] & 1)
