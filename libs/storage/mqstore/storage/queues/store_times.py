"""Reads the store time of the record that a queue entry names. Any thread."""

from __future__ import annotations

import struct
from typing import Final, Protocol

from mqstore.storage.layout import SysFlag

_SYS_FLAG_AT: Final = 36
_STORE_TIME_AT: Final = 56
_STORE_TIME_AT_V6: Final = 68
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class LogView(Protocol):
    """The readable part of the commit log."""

    @property
    def min_offset(self) -> int:
        """The first physical offset."""

    @property
    def max_offset(self) -> int:
        """The readable end, a physical offset."""

    def select(self, offset: int, size: int) -> memoryview | None:
        """The bytes from ``offset``, or None when they cannot be read."""


def store_time(physical_offset: int, log: LogView) -> int | None:
    """STORETIMESTAMP of the record at a physical offset, in ms; None where it cannot be read or is
    0, as in tombstones of earlier versions."""
    if not log.min_offset <= physical_offset < log.max_offset:
        return None
    view = log.select(physical_offset, _STORE_TIME_AT_V6 + _LONG.size)
    return None if view is None else store_time_at(view, 0)


def store_time_at(view: memoryview, position: int) -> int | None:
    """STORETIMESTAMP of the whole record at a position, in ms; None for 0."""
    sys_flag: int = _INT.unpack_from(view, position + _SYS_FLAG_AT)[0]
    at = _STORE_TIME_AT_V6 if sys_flag & SysFlag.BORN_HOST_V6 else _STORE_TIME_AT
    stored: int = _LONG.unpack_from(view, position + at)[0]
    return stored or None
