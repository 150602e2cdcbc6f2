"""Mutations that know where the numbers are: what a seed draws, it draws again."""

from __future__ import annotations

import random
from collections.abc import Sequence

INTERESTING = (0, 1, 2, 7, 8, 20, 91, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF)
EXTREMES = (-1, -2, -8, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32 - 1)
MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94")


class Mutator:
    """Changes bytes in one to four places; ``fields`` are (position, size) of big-endian numbers
    of the unchanged bytes, negative positions counting from the end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def mutated(
        self, data: bytes, fields: Sequence[tuple[int, int]], others: Sequence[bytes] = ()
    ) -> bytearray:
        """A changed copy; now and then shorter, longer, or with a part of one of ``others``."""
        changed = bytearray(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 4))):
            self._mutate(changed, fields, others)
        return changed

    def _mutate(
        self, data: bytearray, fields: Sequence[tuple[int, int]], others: Sequence[bytes]
    ) -> None:
        draw = self.random.random()
        if draw < 0.45 and fields:
            self._set_number(data, *self.random.choice(fields))
        elif draw < 0.70:
            self._flip(data)
        elif draw < 0.78:
            self._fill(data)
        elif draw < 0.84:
            del data[self._at(data) :]
        elif draw < 0.89:
            data[self._at(data) : self._at(data)] = self.random.randbytes(
                self.random.choice((1, 2, 4, 20, 200))
            )
        elif draw < 0.94 and others:
            self._splice(data, self.random.choice(others))
        else:
            at = self._at(data)
            data[at : at + 4] = self.random.choice(MAGICS)

    def _at(self, data: bytearray) -> int:
        return self.random.randrange(len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)

    def _fill(self, data: bytearray) -> None:
        at, length = self._at(data), self.random.choice((1, 4, 16, 512))
        end = min(at + length, len(data))
        data[at:end] = bytes([self.random.choice((0, 1, 2, 32, 0x7F, 0x80, 0xFF))]) * (end - at)

    def _splice(self, data: bytearray, other: bytes) -> None:
        start = self.random.randrange(len(other) + 1)
        part = other[start : start + self.random.choice((4, 8, 20, 100, 1000))]
        at = self._at(data)
        data[at : at + len(part)] = part

    def _set_number(self, data: bytearray, position: int, size: int) -> None:
        at = position if position >= 0 else len(data) + position
        if not 0 <= at <= len(data) - size:
            return
        before = int.from_bytes(data[at : at + size])
        draw = self.random.random()
        if draw < 0.35:
            value = before + self.random.choice((-8, -4, -2, -1, 1, 2, 4, 8, 12, 24))
        elif draw < 0.6:
            value = self.random.choice(INTERESTING)
        elif draw < 0.85:
            value = self.random.choice(EXTREMES)
        else:
            value = before ^ 1 << self.random.randrange(8 * size)
        data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size)
