"""Text as Java handles it: UTF-8 decoding with its replacement rules, and String.hashCode.

Facts: OpenJDK 17's ``new String(bytes, UTF_8)`` and ``String.hashCode``, compared on random bytes.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from mqstore.storage import _kernel

_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Java replaces these bytes by one U+FFFD, Python replaces each byte by one."""
_REPLACEMENT: Final = "\ufffd".encode()
_NATIVE_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
INT32_MIN: Final = -(2**31)


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8 as Java does: malformed sequences become U+FFFD; never raises."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def string_hash(text: str) -> int:
    """Compute String.hashCode: a signed 32-bit integer over UTF-16 units."""
    try:
        hashed = _kernel.utf8_hash(text.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        hashed = None
    if hashed is not None:
        return hashed
    return _kernel.utf16_hash(text.encode(_NATIVE_UTF16, "surrogatepass"))


def index_hash(key: str) -> int:
    """Compute IndexFile's hash of a whole key such as ``topic#key``: 0..2**31-1.

    The hash is the absolute value of String.hashCode; -2**31, which has none, becomes 0.
    """
    value = string_hash(key)
    return 0 if value == INT32_MIN else abs(value)
