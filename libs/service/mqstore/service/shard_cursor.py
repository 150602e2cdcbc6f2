"""The cursor of a query over several shards: the cursor of each shard in one opaque text.

A checksum binds it to its query, as ``mqstore.storage.codec.cursors`` does for one shard.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

import msgspec

from mqstore.storage.errors import CursorError

LENGTH_MAX: Final = 16_384
"""Maximum length of a cursor: enough for 300 shards; the chart makes at most 250."""
_CHECK_SIZE: Final = 4
_VERSION: Final = 1


class ShardPosition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The position at which a query continues on one shard.

    ``cursor`` is the shard's own; None at the start and when the shard is finished.
    """

    cursor: str | None = None
    is_finished: bool = False
    complete: bool = True
    """Whether a finished shard's part of the result is complete."""


ShardPositions = dict[int, ShardPosition]
START: Final = ShardPosition()
_decoder: Final = msgspec.json.Decoder(ShardPositions)


def encode(positions: ShardPositions, query: str) -> str:
    """Return the cursor. ``query`` is a text of all other parameters of the query."""
    content = msgspec.json.encode(positions)
    return base64.urlsafe_b64encode(_check(content, query) + content).decode("ascii")


def decode(text: str | None, query: str) -> ShardPositions:
    """Return the positions of a cursor, none for None. Raises CursorError.

    ``query`` must be the text that the cursor was encoded with.
    """
    if text is None:
        return {}
    try:
        packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        content = packed[_CHECK_SIZE:]
        positions = _decoder.decode(content)
    except (ValueError, binascii.Error) as error:
        raise CursorError(
            f"{text[:40]!r} is no cursor over several shards; repeat the query without it"
        ) from error
    if packed[:_CHECK_SIZE] != _check(content, query) or encode(positions, query) != text:
        raise CursorError(
            f"cursor {text[:40]!r} belongs to another query; repeat this query without it"
        )
    return positions


def _check(content: bytes, query: str) -> bytes:
    query_bytes = query.encode("utf-8", "surrogatepass")
    return zlib.crc32(b"%d\0%s\0%s" % (_VERSION, content, query_bytes)).to_bytes(_CHECK_SIZE)
