"""Memory whose neighbours cannot be touched: a read outside ends the process."""

from __future__ import annotations

import ctypes
import mmap

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PROT_NONE = 0


class GuardedMemory:
    """Room for ``size`` bytes between two forbidden pages."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._room = -(-size // page) * page
        self._map = mmap.mmap(-1, self._room + 2 * page)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for guard in (begin, begin + page + self._room):
            if _libc.mprotect(guard, page, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._view = memoryview(self._map)[page : page + self._room]

    def at_end(self, data: bytes | bytearray) -> memoryview:
        """The bytes in place, the last of them the last before the guard."""
        view = self._view[self._room - len(data) :]
        view[:] = data
        return view

    def at_begin(self, data: bytes | bytearray) -> memoryview:
        """The bytes in place, the first of them the first behind the guard."""
        view = self._view[: len(data)]
        view[:] = data
        return view
