"""One unit of ConsumeQueueExt: the fields of a queue entry whose tagsCode is the unit's address.

Size 2, tagsCode 8, store time 8, size of the bitmap 2, bitmap; big-endian. Source: CqExtUnit of
4.9.7 and 5.4.0.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqstore.storage.layout import EXT_UNIT_SIZE_MIN

_HEAD: Final = struct.Struct(">hqqh")
_SIZE: Final = struct.Struct(">h")
END: Final = _SIZE.pack(-1)
"""Stands in place of a unit where the rest of the file is unused."""


class ExtUnit(NamedTuple):
    """One decoded unit."""

    tags_code: int
    """Hash of TAGS, or a delivery time in SCHEDULE_TOPIC_XXXX."""
    store_timestamp_ms: int
    bitmap: bytes
    """The bits of the subscriptions that match the message; empty when none was evaluated."""

    @property
    def size(self) -> int:
        """Bytes of the encoded unit."""
        return EXT_UNIT_SIZE_MIN + len(self.bitmap)


def encode(unit: ExtUnit) -> bytes:
    """Encode a unit."""
    return (
        _HEAD.pack(unit.size, unit.tags_code, unit.store_timestamp_ms, len(unit.bitmap))
        + unit.bitmap
    )


def decode(view: memoryview, position: int) -> ExtUnit | None:
    """Decode the unit at ``position``; None where no whole unit stands."""
    if not 0 <= position <= len(view) - EXT_UNIT_SIZE_MIN:
        return None
    size, tags_code, stored_ms, bitmap_size = _HEAD.unpack_from(view, position)
    begin = position + EXT_UNIT_SIZE_MIN
    if bitmap_size < 0 or size != EXT_UNIT_SIZE_MIN + bitmap_size or position + size > len(view):
        return None
    return ExtUnit(tags_code, stored_ms, bytes(view[begin : begin + bitmap_size]))
