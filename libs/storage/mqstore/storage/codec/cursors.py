"""Cursors of key queries: opaque text by which a client continues a query.

A checksum binds a cursor to its query: with another query it would silently skip records.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

from mqstore.storage.errors import CursorError

_CURSOR: Final = struct.Struct(">qI")
"""Twelve bytes, so that each character of their base64 has all of its bits used."""
_NAME_CHECK: Final = struct.Struct(">I")
_VERSION: Final = 2


def encode(below: int, query: str) -> str:
    """Encode a cursor that continues below a physical offset; ``query`` identifies the query."""
    packed = _CURSOR.pack(below, _check(below, query))
    return base64.urlsafe_b64encode(packed).decode("ascii")


def decode(text: str, query: str) -> int:
    """Decode the physical offset. Raises CursorError, also for a cursor of another query."""
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        below, check = _CURSOR.unpack(packed)
    except (ValueError, struct.error, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor of such a query; repeat the query without it"
        ) from error
    if below < 0 or check != _check(below, query):
        raise CursorError(
            f"cursor {text[:40]!r} is of another query than this one; repeat the query without it"
        )
    return int(below)


def encode_name(name: str, query: str) -> str:
    """Encode a cursor that continues after this name; ``query`` as in ``encode``."""
    packed = _NAME_CHECK.pack(_check(name, query)) + name.encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(packed).decode("ascii")


def decode_name(text: str, query: str) -> str:
    """Decode the name. Raises CursorError."""
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        (check,) = _NAME_CHECK.unpack_from(packed)
        name = packed[_NAME_CHECK.size :].decode("utf-8", "surrogatepass")
    except (ValueError, struct.error, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor of such a query; repeat the query without it"
        ) from error
    if check != _check(name, query) or encode_name(name, query) != text:
        raise CursorError(
            f"cursor {text[:40]!r} is of another query than this one; repeat the query without it"
        )
    return name


def _check(below: int | str, query: str) -> int:
    return zlib.crc32(f"{_VERSION}\0{below}\0{query}".encode("utf-8", "surrogatepass"))
