"""Locates the single changed word of a block, and its original bits.

CRC-32C and parity of a block together locate a single changed word of 4 bytes, and the parity gives
its original bits.

Called from ``recovery`` and ``scrub``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mqstore.storage._kernel import locate_damage
from mqstore.storage.layout import BLOCK_DOUBTFUL, BLOCK_ENTRY_SIZE, BLOCK_HEADER_SIZE, BLOCK_SIZE

WORD_SIZE: Final = 4


class ChangedWord(NamedTuple):
    """A changed word: its ``position`` in the segment, and its original bytes."""

    position: int
    content: bytes


def find_changed_word(
    view: memoryview, entries: memoryview, base: int, number: int
) -> ChangedWord | None:
    """Find the changed word of a block that does not match its checksum; None for wider damage."""
    start, stop = locate_damage(view, entries, base, number)
    if not 0 < stop - start <= WORD_SIZE:
        return None
    at = start - start % WORD_SIZE
    bits = _changed_bits(view, entries, number)
    content = bytes(old ^ new for old, new in zip(view[at : at + WORD_SIZE], bits, strict=False))
    return ChangedWord(at, content)


def restore_words(
    view: memoryview, start: int, stop: int, words: Iterable[ChangedWord]
) -> bytearray:
    """Copy a range of a segment, with changed words restored."""
    copy = bytearray(view[start:stop])
    for word in words:
        for at, byte in enumerate(word.content, word.position - start):
            if 0 <= at < len(copy):
                copy[at] = byte
    return copy


def _changed_bits(view: memoryview, entries: memoryview, number: int) -> bytes:
    """The exclusive or of a block's words at the sync and now: four bytes."""
    entry = entries[BLOCK_HEADER_SIZE + number * BLOCK_ENTRY_SIZE :]
    covered = int.from_bytes(entry[8:12]) & ~BLOCK_DOUBTFUL
    block = bytes(view[number * BLOCK_SIZE :][:covered]).ljust(BLOCK_SIZE, b"\0")
    words, bits = int.from_bytes(block), BLOCK_SIZE * 8
    while bits > WORD_SIZE * 8:
        bits //= 2
        words = words >> bits ^ words & (1 << bits) - 1
    return (words ^ int.from_bytes(entry[4:8])).to_bytes(WORD_SIZE)
