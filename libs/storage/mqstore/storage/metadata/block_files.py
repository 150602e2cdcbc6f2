"""``store/mqstore/blocks/``: checksums of the log, by block of 64 KiB, one file per segment.

A file is a header of 64 bytes (its store and segment, and their sizes) and one entry of 16 bytes a
block: CRC-32C, parity (exclusive or of its 4-byte words) and length of the covered bytes from the
block's first byte on, and a CRC-32C over these and the block's physical offset. Integers are
big-endian; an entry of zeros, or one whose own checksum does not match, covers nothing.

The highest bit of the length marks a doubtful block: it did not match its checksum when a tombstone
was put into it, so that its new checksum covers the bytes that the repair left. It proves that no
byte has changed since; the records in it are served by their own checks (``lookup.own_checks``).

An entry is made and extended only over bytes that were synced before, so any value of it that
reaches the disk is true. Covered bytes are changed only after their entry was dropped and the drop
synced. The files do not count once another program has opened the store (``opening``): they are
then made again.

Called from ``block_guard``, ``log.block_cover``, ``recovery`` and ``verify``. Thread-safe for
different segments.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from mqstore.storage._kernel import check_block, crc32c, locate_damage
from mqstore.storage.layout import (
    BLOCK_DOUBTFUL,
    BLOCK_ENTRY_SIZE,
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
)
from mqstore.storage.paths import segment_name, segment_offset
from mqstore.storage.seams import FileSystem, MappedBytes

MAGIC: Final = b"MQBLOCKS"
VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sIIqq16s16x")
"""Magic, version, block size, segment size, physical offset of the segment, store id."""
_ENTRY: Final = struct.Struct(">IIII")
"""CRC-32C, parity, covered length, checksum of the entry."""
_NO_ENTRY: Final = bytes(BLOCK_ENTRY_SIZE)

log = logging.getLogger(__name__)


def blocks_of(segment_size: int) -> int:
    """The number of blocks of a segment; the last one may be shorter."""
    return -(-segment_size // BLOCK_SIZE)


def read_coverage(entries: memoryview, base: int, number: int) -> tuple[int, int]:
    """The number of bytes that a block's entry covers, and their CRC-32C; 0 without a valid
    entry."""
    at = BLOCK_HEADER_SIZE + number * BLOCK_ENTRY_SIZE
    entry = bytes(entries[at : at + BLOCK_ENTRY_SIZE])
    if len(entry) < BLOCK_ENTRY_SIZE:
        return 0, 0
    crc, _, length, seal = _ENTRY.unpack(entry)
    length &= ~BLOCK_DOUBTFUL
    is_whole = seal == _seal(entry[:12], base, number) and 0 < length <= BLOCK_SIZE
    return (length, crc) if is_whole else (0, 0)


def _seal(fields: bytes, base: int, number: int) -> int:
    return crc32c((base + number * BLOCK_SIZE).to_bytes(8), crc32c(fields))


def _is_doubtful(entry: bytes, base: int, number: int) -> bool:
    _, _, length, seal = _ENTRY.unpack(entry)
    return bool(length & BLOCK_DOUBTFUL) and seal == _seal(entry[:12], base, number)


def _doubtful_entry(base: int, number: int) -> bytes:
    """The entry of a doubtful block without covered bytes."""
    fields = struct.pack(">III", 0, 0, BLOCK_DOUBTFUL)
    return fields + _seal(fields, base, number).to_bytes(4)


class BlockFiles:
    """The checksum files of one store's segments."""

    def __init__(
        self, files: FileSystem, directory: Path, segment_size: int, store_id: str
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_size = segment_size
        self._store_id = UUID(store_id).bytes
        self.file_size = BLOCK_HEADER_SIZE + BLOCK_ENTRY_SIZE * blocks_of(segment_size)

    def path_of(self, base: int) -> Path:
        """The path of a segment's file."""
        return self._directory / segment_name(base)

    def bases(self) -> list[int]:
        """First offsets of the segments that have a file here, ascending."""
        names = map(segment_offset, self._files.list(self._directory))
        return [base for base in names if base is not None]

    def entries(self, base: int) -> memoryview | None:
        """A segment's file, read-only; None without a file that belongs to the segment."""
        mapped = self._map(base, writable=False)
        return None if mapped is None else mapped.view

    def writable(self, base: int) -> MappedBytes:
        """A segment's file, created without one that belongs to the segment. Raises OSError."""
        mapped = self._map(base, writable=True)
        if mapped is None:
            if self._files.stat(self.path_of(base)) is not None:
                log.warning("%s cannot be used and is made again", self.path_of(base))
            empty = bytes(self.file_size - BLOCK_HEADER_SIZE)
            beside = self.path_of(base).with_suffix(".tmp")
            self._files.write(beside, self._header(base) + empty)
            # Its directory is not synced: a file that a power cut removes is made again.
            self._files.rename(beside, self.path_of(base))
            mapped = self._files.map(self.path_of(base), writable=True)
        return mapped

    def drop(self, start: int, stop: int | None = None) -> None:
        """Drop the entries of blocks from physical offset ``start`` to before ``stop``.

        Durable at return: only then may these bytes change. Raises OSError.
        """
        removed = False
        for base in self.bases():
            end = base + self._segment_size
            if end <= start or (stop is not None and base >= stop):
                continue
            if start <= base and (stop is None or end <= stop):
                self._files.unlink(self.path_of(base))
                removed = True
            else:
                self._drop_entries(base, start, end if stop is None else min(stop, end))
        if removed:
            self._files.sync_directory(self._directory)

    def _drop_entries(self, base: int, start: int, stop: int) -> None:
        mapped = self._map(base, writable=True)
        if mapped is None:
            return
        changed = False
        first = max(0, start - base) // BLOCK_SIZE
        for number in range(first, blocks_of(stop - base)):
            at = BLOCK_HEADER_SIZE + number * BLOCK_ENTRY_SIZE
            entry = bytes(mapped.view[at : at + BLOCK_ENTRY_SIZE])
            covered: int = _ENTRY.unpack(entry)[2] & ~BLOCK_DOUBTFUL
            if base + number * BLOCK_SIZE + covered > start and covered:
                doubtful = _is_doubtful(entry, base, number)
                dropped = _doubtful_entry(base, number) if doubtful else _NO_ENTRY
                mapped.view[at : at + BLOCK_ENTRY_SIZE] = dropped
                changed = True
        if changed:
            mapped.sync()
        mapped.unmap()

    def drop_for_tombstone(self, segment: memoryview, base: int, start: int, stop: int) -> None:
        """Drop the checksums of the blocks that a tombstone in one segment is going to change.

        A block that does not match its checksum is marked doubtful: the tombstone hides which other
        bytes changed. Raises OSError.
        """
        mapped = self._map(base, writable=True)
        if mapped is None:
            return
        changed = False
        for number in range(start // BLOCK_SIZE, blocks_of(stop)):
            at = BLOCK_HEADER_SIZE + number * BLOCK_ENTRY_SIZE
            entry = bytes(mapped.view[at : at + BLOCK_ENTRY_SIZE])
            if entry == _NO_ENTRY:
                continue
            doubtful = _is_doubtful(entry, base, number)
            doubtful = doubtful or check_block(segment, mapped.view, base, number, 0) < 0
            dropped = _doubtful_entry(base, number) if doubtful else _NO_ENTRY
            mapped.view[at : at + BLOCK_ENTRY_SIZE] = dropped
            changed = True
        if changed:
            mapped.sync()
        mapped.unmap()

    def _map(self, base: int, *, writable: bool) -> MappedBytes | None:
        path = self.path_of(base)
        stat = self._files.stat(path)
        if stat is None or stat.size != self.file_size:
            return None
        try:
            mapped = self._files.map(path, writable=writable)
        except FileNotFoundError:  # the segment expired since
            return None
        if bytes(mapped.view[:BLOCK_HEADER_SIZE]) != self._header(base):
            mapped.unmap()
            return None
        return mapped

    def _header(self, base: int) -> bytes:
        return _HEADER.pack(MAGIC, VERSION, BLOCK_SIZE, self._segment_size, base, self._store_id)


def damage_in(
    segment: memoryview, entries: memoryview, base: int, start: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Yield the damaged positions (from, to) of each block that holds positions from ``start`` to
    before ``stop``; see ``locate_damage``."""
    for number in range(start // BLOCK_SIZE, blocks_of(min(stop, len(segment)))):
        if check_block(segment, entries, base, number, 0) < 0:
            yield locate_damage(segment, entries, base, number)
