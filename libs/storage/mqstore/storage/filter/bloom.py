"""RocketMQ's bloom filter of subscriptions: maps a subscription to bits of a message's bitmap.

Source: BloomFilter and BitsArray of rocketmq-filter 4.9.7 and 5.4.0; the hash is Guava's
murmur3_128 (x64, seed 0) of the UTF-8 text, of which the lower 64 bits count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The parameters of a bloom filter. Immutable; any thread."""

    hashes: int
    """Number of positions of each text."""
    bits: int
    """Bits of a bitmap; a multiple of 8."""

    @classmethod
    def of(cls, error_rate_percent: int, expected: int) -> Self:
        """Build a filter from maxErrorRateOfBloomFilter (1 to 99) and expectConsumerNumUseFilter
        (from 1)."""
        rate = error_rate_percent / 100
        hashes = math.ceil(_log(0.5, rate))
        bits = math.ceil(expected * _log(2, 1 / rate) * _log(2, math.e))
        return cls(hashes, _BYTE * math.ceil(bits / _BYTE))

    def positions(self, text: str) -> tuple[int, ...]:
        """The bits of a text."""
        hashed = murmur3(text.encode("utf-8", "replace"))
        low, high = _to_int32(hashed), _to_int32(hashed >> 32)
        found = []
        for number in range(1, self.hashes + 1):
            combined = _to_int32(low + number * high)
            found.append((combined if combined >= 0 else ~combined) % self.bits)
        return tuple(found)

    def accepts(self, bits: int, positions: tuple[int, ...]) -> bool:
        """Whether these are valid positions in bitmaps of this filter's size.

        Any number of positions is valid: readers of a bitmap of this size use the registered
        positions.
        """
        return bits == self.bits and all(0 <= each < bits for each in positions)

    def new_bitmap(self) -> bytearray:
        """An empty bitmap."""
        return bytearray(self.bits // _BYTE)


def add(bitmap: bytearray, positions: tuple[int, ...]) -> None:
    """Set these bits."""
    for position in positions:
        bitmap[position // _BYTE] |= 1 << position % _BYTE


def has(bitmap: bytes | bytearray | memoryview, positions: tuple[int, ...]) -> bool:
    """Whether all of these bits are set; false positives are inherent to a bloom filter."""
    return all(bitmap[position // _BYTE] & 1 << position % _BYTE for position in positions)


@lru_cache(4_096)
def murmur3(data: bytes) -> int:
    """Compute the lower 64 bits of murmur3_128."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _mix_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    h2 ^= _mix_2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finish(h1) + _finish(h2) & _MASK


def _mix_1(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_2(word: int) -> int:
    return _rotate(word * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _to_int32(word: int) -> int:
    """Convert to Java's int."""
    return ((word & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _log(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
