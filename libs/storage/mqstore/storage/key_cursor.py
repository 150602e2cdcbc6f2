"""Where a key query goes on, as opaque text that a client hands back."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Final

from mqstore.storage.errors import CursorError

_CURSOR = struct.Struct(">Bq")
_CURSOR_VERSION: Final = 1


def encode(below: int) -> str:
    """Go on below this physical offset."""
    packed = _CURSOR.pack(_CURSOR_VERSION, below)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def decode(text: str) -> int:
    """What ``encode`` was given. Raises CursorError."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        version, below = _CURSOR.unpack(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, struct.error, binascii.Error) as error:
        raise CursorError(f"{text[:40]!r} is no cursor of a key query") from error
    if version != _CURSOR_VERSION or below < 0:
        raise CursorError(f"{text[:40]!r} is no cursor of a key query; ask again without it")
    return int(below)
