"""Where a key query goes on, as opaque text that a client hands back.

A check sum ties it to the query that it came from: with another one it would leave records out and
not say so.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

from mqstore.storage.errors import CursorError

_CURSOR: Final = struct.Struct(">qI")
"""Twelve bytes: no character of their base64 has a bit to spare."""
_VERSION: Final = 2


def encode(below: int, query: str) -> str:
    """Go on below this physical offset; ``query`` stands for all else that was asked."""
    packed = _CURSOR.pack(below, _check(below, query))
    return base64.urlsafe_b64encode(packed).decode("ascii")


def decode(text: str, query: str) -> int:
    """What ``encode`` was given. Raises CursorError, also for a cursor of another query."""
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        below, check = _CURSOR.unpack(packed)
    except (ValueError, struct.error, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor of such a query; ask again without it"
        ) from error
    if below < 0 or check != _check(below, query):
        raise CursorError(
            f"cursor {text[:40]!r} is of another query than this one; ask again without it"
        )
    return int(below)


def _check(below: int, query: str) -> int:
    return zlib.crc32(f"{_VERSION}\0{below}\0{query}".encode("utf-8", "surrogatepass"))
