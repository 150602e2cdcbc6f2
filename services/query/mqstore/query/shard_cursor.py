"""Where a query over several shards goes on: each shard's own cursor, as one opaque text.

A check sum ties it to its query, as ``mqstore.storage.codec.cursors`` does for one shard.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

import msgspec

from mqstore.storage.errors import CursorError

LENGTH_MAX: Final = 16_384
"""Of a cursor over 300 shards; the chart makes 250 at most."""
_CHECK_SIZE: Final = 4
_VERSION: Final = 1


class Part(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far one shard is. ``cursor``: its own; None where it begins, or is over."""

    cursor: str | None = None
    is_over: bool = False
    complete: bool = True
    """Of one that is over: nothing of it was left out."""


Parts = dict[int, Part]
BEGIN: Final = Part()
_decoder: Final = msgspec.json.Decoder(Parts)


def encode(parts: Parts, query: str) -> str:
    """``query`` stands for all else that was asked."""
    told = msgspec.json.encode(parts)
    return base64.urlsafe_b64encode(_check(told, query) + told).decode("ascii")


def decode(text: str | None, query: str) -> Parts:
    """What ``encode`` was given; nothing for None. Raises CursorError."""
    if text is None:
        return {}
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        told = packed[_CHECK_SIZE:]
        parts = _decoder.decode(told)
    except (ValueError, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor over several shards; ask again without it"
        ) from error
    if packed[:_CHECK_SIZE] != _check(told, query) or encode(parts, query) != text:
        raise CursorError(
            f"cursor {text[:40]!r} is of another query than this one; ask again without it"
        )
    return parts


def _check(told: bytes, query: str) -> bytes:
    asked = query.encode("utf-8", "surrogatepass")
    return zlib.crc32(b"%d\0%s\0%s" % (_VERSION, told, asked)).to_bytes(_CHECK_SIZE)
