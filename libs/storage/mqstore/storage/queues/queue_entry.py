"""One ConsumeQueue entry: physical offset 8, size 4, tagsCode 8. Source: ConsumeQueue of 4.9.7."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from mqstore.storage.layout import EXT_ADDRESS_MAX, PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE

if TYPE_CHECKING:
    from mqstore.storage.mapped.mapped_file import MappedFile

ENTRY: Final = struct.Struct(">qiq")
PRE_BLANK: Final = ENTRY.pack(0, PRE_BLANK_SIZE, 0)
_BLOCK_ENTRIES: Final = 512
_BLOCK_SIZE: Final = _BLOCK_ENTRIES * QUEUE_ENTRY_SIZE


class QueueEntry(NamedTuple):
    """One decoded entry."""

    physical_offset: int
    size: int
    tags_code: int
    """Hash of TAGS, a delivery time in SCHEDULE_TOPIC_XXXX, or a ConsumeQueueExt address."""

    @property
    def is_missing(self) -> bool:
        """Whether the entry was never written: no record has a size below 1."""
        return self.size <= 0

    @property
    def is_pre_blank(self) -> bool:
        """Whether the entry precedes the first entry of a queue's first file."""
        return self.size == PRE_BLANK_SIZE and self.physical_offset == 0

    @property
    def is_hole(self) -> bool:
        """Whether the entry names no record."""
        return self.is_missing or self.is_pre_blank

    @property
    def is_ext_address(self) -> bool:
        """Whether its tagsCode is the address of a ConsumeQueueExt unit."""
        return is_ext_address(self.tags_code)


class Put(Enum):
    """The result of putting an entry."""

    APPENDED = auto()
    FILLED = auto()
    """A hole below ``max_index`` was filled."""
    PRESENT = auto()
    """The same entry was there."""
    DIFFERENT = auto()
    """Another entry was there and was kept."""
    REFUSED = auto()
    """The queue offset is impossible: negative, or further ahead of the queue or before its first
    entry than the log between has room for records."""


def is_ext_address(tags_code: int) -> bool:
    """Whether a tagsCode is the address of a ConsumeQueueExt unit."""
    return tags_code <= EXT_ADDRESS_MAX


def entries_in(
    files: Sequence[MappedFile], start: int, stop: int
) -> Iterator[tuple[int, QueueEntry]]:
    """Read the entries of these numbers from the files, unwritten ones included."""
    for mapped in files:
        first = mapped.base_offset // QUEUE_ENTRY_SIZE
        end = min(stop, first + mapped.size // QUEUE_ENTRY_SIZE)
        for index in range(max(start, first), end, _BLOCK_ENTRIES):
            at = (index - first) * QUEUE_ENTRY_SIZE
            block = mapped.view[at : min(at + _BLOCK_SIZE, (end - first) * QUEUE_ENTRY_SIZE)]
            for number, fields in enumerate(ENTRY.iter_unpack(bytes(block)), index):
                yield number, tuple.__new__(QueueEntry, fields)
