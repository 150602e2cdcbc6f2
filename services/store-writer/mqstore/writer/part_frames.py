"""Frames of a part of an index rebuild, as the job sends them, decoded in bounded memory.

A frame is start 8, length 4, CRC-32C of what follows 4 (all big-endian), then ``length`` bytes:
items of the chunk that begins at physical offset ``start``, 24 bytes each as the kernel's
``IndexItems`` gives them (this machine's byte order). A chunk may come in several frames. The last
frame has start 2**64 - 1 and holds the number of all items, 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.index import ITEM_SIZE

HEAD: Final = struct.Struct(">QII")
COUNT: Final = struct.Struct(">Q")
LAST: Final = 2**64 - 1
FRAME_MAX: Final = 4 << 20
"""Maximum bytes of items in one frame."""


class FrameReader:
    """Decodes frames from pieces of any length. It holds at most one frame."""

    def __init__(self) -> None:
        self.items: int | None = None
        """Number of all items; None before the last frame."""
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the start and the items of each complete frame. Raises IndexRebuildInvalid."""
        if piece and self.items is not None:
            raise IndexRebuildInvalid("bytes follow the last frame; send the last frame at the end")
        self._held += piece
        while self.items is None and (frame := self._next()) is not None:
            if frame[0] != LAST:
                yield frame
            else:
                self._end(frame[1])

    def _next(self) -> tuple[int, bytes] | None:
        held = self._held
        if len(held) < HEAD.size:
            return None
        start, length, checksum = HEAD.unpack_from(held)
        if not 0 < length <= FRAME_MAX or (start != LAST and length % ITEM_SIZE):
            raise IndexRebuildInvalid(
                f"a frame of {length} bytes is no whole items, or more than {FRAME_MAX} bytes"
            )
        end = HEAD.size + length
        if len(held) < end:
            return None
        content = bytes(memoryview(held)[HEAD.size : end])
        del held[:end]
        if crc32c(content) != checksum:
            raise IndexRebuildInvalid(
                f"the frame of offset {start} is not what its checksum says; send the part again"
            )
        return start, content

    def _end(self, content: bytes) -> None:
        if len(content) != COUNT.size or self._held:
            raise IndexRebuildInvalid("the last frame holds the number of items, 8 bytes, no more")
        (self.items,) = COUNT.unpack(content)
