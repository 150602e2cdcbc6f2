"""Finds the entries of a queue whose tagsCode is the address of a unit. Any thread."""

from __future__ import annotations

import struct
from array import array
from typing import Final, Protocol

from mqstore.storage._kernel import count_untagged
from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.queues.queue_entry import is_ext_address

_NO_CODE: Final = array("q", [2**63 - 1])
"""A code that no entry has, so that only addresses are found."""
_CODE: Final = struct.Struct(">q")
_CODE_AT: Final = 12
_STEP: Final = 4_096
"""Entries examined at a time, from the end."""


class Entries(Protocol):
    """The entries of a queue."""

    def block(self, index: int) -> tuple[memoryview, int] | None:
        """The whole file that holds an entry, and the position of the entry in it."""


def first_address(entries: Entries, start: int, stop: int) -> int | None:
    """The address of the first entry from ``start`` to before ``stop`` that has one."""
    while start < stop and (place := entries.block(start)) is not None:
        view, position = place
        there = min((len(view) - position) // QUEUE_ENTRY_SIZE, stop - start)
        passed = count_untagged(view, position, there, _NO_CODE)
        start += max(passed, 1)
        if passed < there:
            (code,) = _CODE.unpack_from(view, position + passed * QUEUE_ENTRY_SIZE + _CODE_AT)
            return code if is_ext_address(code) else None
    return None


def last_address(entries: Entries, start: int, stop: int) -> int | None:
    """The greatest address of the last entries that have one."""
    for low in range(stop - _STEP, start - _STEP, -_STEP):
        found = _greatest(entries, max(low, start), low + _STEP)
        if found is not None:
            return found
    return None


def _greatest(entries: Entries, start: int, stop: int) -> int | None:
    codes: list[int] = []
    while start < stop and (place := entries.block(start)) is not None:
        view, position = place
        there = min((len(view) - position) // QUEUE_ENTRY_SIZE, stop - start)
        part = view[position : position + there * QUEUE_ENTRY_SIZE]
        codes += [code for (_, code) in struct.iter_unpack(">12sq", part)]
        start += max(there, 1)
    return max(filter(is_ext_address, codes), default=None)
