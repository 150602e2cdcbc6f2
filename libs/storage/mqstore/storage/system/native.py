"""Calls of the C library that Python's modules lack, or make while holding the GIL.

``mmap.mmap`` keeps a duplicate of the descriptor for every mapping and unmaps with the GIL held;
here a mapping costs no descriptor, and mapping, populating, locking and unmapping release the GIL.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Final, cast

MAP_NORESERVE: Final = 0x4000
MADV_POPULATE_READ: Final = 22
MADV_POPULATE_WRITE: Final = 23
"""Linux 5.14, both; older kernels return EINVAL."""
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.munlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def map_shared(descriptor: int, size: int, *, writable: bool) -> memoryview:
    """Map a file's first ``size`` bytes; the descriptor may be closed afterwards."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    view = _map(descriptor, size, protection, mmap.MAP_SHARED)
    return view if writable else view.toreadonly()


def map_private(descriptor: int, size: int) -> memoryview:
    """Map as ``map_shared``, writable, but stores stay in this process's memory."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    return _map(descriptor, size, protection, mmap.MAP_PRIVATE | MAP_NORESERVE)


def map_anonymous(size: int) -> memoryview:
    """Map zero-filled memory that takes room only where it is written."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    return _map(-1, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)


def populate(view: memoryview, offset: int, length: int) -> None:
    """Fault the pages of a range in for writing. A hint: a rejection by the kernel is ignored."""
    _advise(view, offset, length, MADV_POPULATE_WRITE)


def load(view: memoryview, offset: int, length: int) -> None:
    """Fault the pages of a range in for reading: they stay clean until they are stored into."""
    _advise(view, offset, length, MADV_POPULATE_READ)


def expect_no_neighbours(view: memoryview) -> None:
    """Have a page fault in a mapping read or make one page only, and not those around it."""
    _advise(view, 0, len(view), mmap.MADV_RANDOM)


def _advise(view: memoryview, offset: int, length: int, advice: int) -> None:
    start = offset - offset % mmap.PAGESIZE
    end = min(offset + length, len(view))
    if start < end:
        _libc.madvise(_address(view) + start, end - start, advice)


def lock(view: memoryview) -> None:
    """Keep a whole mapping in memory, and start loading what is missing. Raises OSError."""
    address, size = _address(view), len(view)
    refused = ctypes.get_errno() if _libc.mlock(address, size) else 0
    _libc.madvise(address, size, mmap.MADV_WILLNEED)
    if refused:
        raise OSError(refused, f"{size} bytes cannot be locked: {os.strerror(refused)}")


def unlock(view: memoryview) -> None:
    """Undo ``lock``."""
    _libc.munlock(_address(view), len(view))


def _map(descriptor: int, size: int, protection: int, flags: int) -> memoryview:
    if size == 0:
        return memoryview(bytearray())
    address = _libc.mmap(None, size, protection, flags, descriptor, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot map {size} bytes: {os.strerror(number)}")
    block = (ctypes.c_ubyte * size).from_address(address)
    # Runs when the last slice is gone, but never at exit: threads may still be reading.
    weakref.finalize(block, _libc.munmap, address, size).atexit = False
    return memoryview(block).cast("B")


def _address(view: memoryview) -> int:
    return ctypes.addressof(cast("ctypes.Array[ctypes.c_ubyte]", view.obj))
