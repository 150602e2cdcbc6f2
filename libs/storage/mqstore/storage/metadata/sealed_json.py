"""Adds a checksum to our own JSON files: a flipped bit must not become another size or offset.

The first member is ``"checksum"``, eight hexadecimal digits: the CRC-32C of the whole text with
zeros in their place. A file without it (made by hand) is accepted; to edit a file by hand, remove
that member.
"""

from __future__ import annotations

import re
from typing import Final

from crc32c import crc32c
from pydantic import ValidationError

_HEAD: Final = b'{"checksum":"'
_ZEROS: Final = b"00000000"
_SEALED: Final = re.compile(re.escape(_HEAD) + rb'([0-9a-f]{8})",')


def seal(text: str) -> bytes:
    """The bytes to write for a JSON object with one member or more."""
    content = _HEAD + _ZEROS + b'",' + text.encode().removeprefix(b"{")
    return content.replace(_ZEROS, b"%08x" % crc32c(content), 1)


def why_unreadable(error: ValueError) -> str:
    """The reason, in one line, why a file that is read by ``unseal`` and a model is unusable."""
    return error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)


def unseal(raw: bytes) -> bytes:
    """The JSON object without its checksum. Raises ValueError when the checksum does not match."""
    found = _SEALED.match(raw)
    if found is None:
        return raw
    start, end = found.span(1)
    view = memoryview(raw)
    if crc32c(view[end:], crc32c(_ZEROS, crc32c(view[:start]))) != int(found.group(1), 16):
        raise ValueError("its checksum does not fit; it was changed or damaged")
    return b"".join((b"{", view[found.end() :]))
