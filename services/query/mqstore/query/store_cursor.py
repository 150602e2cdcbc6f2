"""Cursors that name their store, because a position in one store means nothing in another.

A client's cursor is the engine's cursor (``lookup.key_cursor``) behind the first bytes of the store
id. Cursors of earlier releases have no store id; they are accepted unchanged.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from mqstore.storage.errors import CursorError

_ID_SIZE: Final = 6
"""Bytes of the store id in a cursor. With or without them base64 needs no padding."""
_PLAIN_SIZE: Final = 12
"""Bytes of the engine's cursor."""


def add_store_id(cursor: str, store_id: str) -> str:
    """Return the engine's cursor in the form that clients get.

    ``store_id``: 32 hexadecimal digits, or empty if unknown (a shard of an earlier release).
    """
    if not store_id:
        return cursor
    marked = bytes.fromhex(store_id)[:_ID_SIZE] + base64.urlsafe_b64decode(cursor)
    return base64.urlsafe_b64encode(marked).decode("ascii")


def remove_store_id(text: str, store_id: str) -> str:
    """Return the engine's cursor of a client's cursor. Raises CursorError for another store's.

    Text that is no cursor is returned unchanged; the engine rejects it.
    """
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
