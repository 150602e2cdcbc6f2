"""What a hot route answers, whichever way the request came."""

from __future__ import annotations

import msgspec


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Status, headers and body in one piece."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()
