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
_NAME_CHECK: Final = struct.Struct(">I")
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


def encode_name(name: str, query: str) -> str:
    """Go on behind this name; ``query`` as in ``encode``."""
    packed = _NAME_CHECK.pack(_check(name, query)) + name.encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(packed).decode("ascii")


def decode_name(text: str, query: str) -> str:
    """What ``encode_name`` was given. Raises CursorError."""
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        (check,) = _NAME_CHECK.unpack_from(packed)
        name = packed[_NAME_CHECK.size :].decode("utf-8", "surrogatepass")
    except (ValueError, struct.error, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor of such a query; ask again without it"
        ) from error
    if check != _check(name, query) or encode_name(name, query) != text:
        raise CursorError(
            f"cursor {text[:40]!r} is of another query than this one; ask again without it"
        )
    return name


def _check(below: int | str, query: str) -> int:
    return zlib.crc32(f"{_VERSION}\0{below}\0{query}".encode("utf-8", "surrogatepass"))
