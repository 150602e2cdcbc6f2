"""Block checksums once more, slow and obvious: what the kernel's functions must answer."""

from __future__ import annotations

import struct

from crc32c import crc32c

from mqstore.storage.layout import BLOCK_ENTRY_SIZE, BLOCK_HEADER_SIZE, BLOCK_SIZE

Entry = tuple[int, int, int]
"""CRC-32C, parity and length of what is covered."""


def parity(data: bytes) -> int:
    """The exclusive or of all 4-byte words; the last one is filled up with zeros."""
    result = 0
    for at in range(0, len(data), 4):
        result ^= int.from_bytes(data[at : at + 4].ljust(4, b"\0"))
    return result


def entry_of(block: bytes) -> Entry:
    return crc32c(block), parity(block), len(block)


def pack(entry: Entry, offset: int) -> bytes:
    """``offset`` is the block's physical offset."""
    raw = struct.pack(">III", *entry)
    return raw + struct.pack(">I", crc32c(raw + struct.pack(">Q", offset)))


def unpack(raw: bytes, offset: int) -> Entry | None:
    """None for what cannot be believed, and for an entry that covers nothing."""
    crc, words, length, _ = struct.unpack(">IIII", raw)
    if not 0 < length <= BLOCK_SIZE or pack((crc, words, length), offset) != raw:
        return None
    return crc, words, length


def place(number: int) -> slice:
    """Position of an entry in its file."""
    at = BLOCK_HEADER_SIZE + number * BLOCK_ENTRY_SIZE
    return slice(at, at + BLOCK_ENTRY_SIZE)


def block(log: bytes, number: int) -> bytes:
    return log[number * BLOCK_SIZE : (number + 1) * BLOCK_SIZE]


def check(log: bytes, entries: bytes, base: int, number: int) -> int:
    """As ``check_block`` that knows nothing yet."""
    found = unpack(entries[place(number)], base + number * BLOCK_SIZE)
    if found is None:
        return 0
    covered = block(log, number)[: found[2]]
    return found[2] if entry_of(covered) == found else -1
