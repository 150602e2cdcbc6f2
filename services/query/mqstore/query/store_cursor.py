"""Cursors that name their store: a position in one store means nothing in another.

Clients get each cursor of the engine (``lookup.key_cursor``) with the first bytes of the store id
before it. Those of earlier releases have no store id, and are taken as they are.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from mqstore.storage.errors import CursorError

_ID_SIZE: Final = 6
"""Bytes of the store id. With them and without, base64 has no bit to spare."""
_PLAIN_SIZE: Final = 12
"""Bytes of a cursor of the engine."""


def mark(cursor: str, store_id: str) -> str:
    """A cursor of the engine as clients get it. ``store_id``: 32 hexadecimal digits, or empty where
    it is not known (a shard of an earlier release)."""
    if not store_id:
        return cursor
    marked = bytes.fromhex(store_id)[:_ID_SIZE] + base64.urlsafe_b64decode(cursor)
    return base64.urlsafe_b64encode(marked).decode("ascii")


def unmark(text: str, store_id: str) -> str:
    """The engine's cursor. Raises CursorError for one of another store; the engine refuses what is
    no cursor at all."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return text
    if len(raw) != _ID_SIZE + _PLAIN_SIZE:
        return text
    marked, own = raw[:_ID_SIZE].hex(), store_id[: 2 * _ID_SIZE]
    if marked != own:
        raise CursorError(
            f"cursor {text[:40]!r} is of store {marked}…, and store {own}… is here now: positions"
            " of the one mean nothing in the other; repeat the query without a cursor"
        )
    return base64.urlsafe_b64encode(raw[_ID_SIZE:]).decode("ascii")
