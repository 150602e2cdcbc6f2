"""Compression of replies, for clients that accept gzip, and the refusal of compressed requests.

Replies of the fast path are sent as they are: it serves producers and consumers, which are near.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from starlette.types import Scope

from mqstore.service import problems
from mqstore.service.limits import content_length
from mqstore.service.problems import Problem

Headers = Iterable[tuple[bytes, bytes]]

SIZE_MIN: Final = 4 << 10
"""Bytes of a reply from which compression saves more than it costs."""
SIZE_MAX: Final = 32 << 20
"""Bytes of the largest reply that is compressed: both forms are in memory meanwhile."""
ON_LOOP_MAX: Final = 64 << 10
"""Bytes of a reply that the event loop compresses itself, in about a millisecond."""
_LEVEL: Final = 1
_PATHS: Final = "/v1/"
"""Paths of replies that may be compressed."""
_TYPES: Final = (b"application/json", b"application/problem+json", b"text/")
_AS_THEY_ARE: Final = frozenset({b"content-encoding", b"content-digest", b"content-range", b"etag"})
"""Header fields of replies that are of these bytes and no others."""


def refuse_encoded(headers: Headers) -> None:
    """Raise Problem (415) for a request whose body is compressed."""
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            coding = value.decode("latin-1")[:100]
            raise Problem(
                problems.UNSUPPORTED_MEDIA_TYPE,
                f"content-encoding {coding!r} is not read; send the body as it is, without one",
                headers={"accept-encoding": "identity"},
            )


def is_wanted(scope: Scope, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the reply to a request, with these header fields, is compressed."""
    return _is_possible(headers) and _is_requested(scope)


def _is_possible(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a reply with these header fields may be compressed."""
    if not SIZE_MIN <= content_length(headers) <= SIZE_MAX:
        return False
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    return kind.startswith(_TYPES) and all(name not in _AS_THEY_ARE for name, _ in headers)


def _is_requested(scope: Scope) -> bool:
    """Return whether the client of a request accepts gzip (RFC 9110, 12.5.3).

    Replies that need no token are sent as they are: every caller could request their compression.
    """
    if not scope["path"].startswith(_PATHS):
        return False
    for name, value in scope["headers"]:
        if name == b"accept-encoding":
            for each in value.lower().split(b","):
                coding, _, weight = each.replace(b" ", b"").partition(b";")
                if coding == b"gzip":
                    return weight.partition(b"q=")[2].strip(b"0.") != b"" or not weight
    return False


async def compress(body: bytes) -> bytes:
    """Return a body in gzip's form; a large one is compressed in a thread."""
    work = partial(gzip.compress, body, _LEVEL, mtime=0)
    return work() if len(body) <= ON_LOOP_MAX else await asyncio.to_thread(work)


def compressed_head(headers: Headers, size: int) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a reply whose compressed body has ``size`` bytes."""
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return [
        *kept,
        (b"content-encoding", b"gzip"),
        (b"content-length", b"%d" % size),
        (b"vary", b"accept-encoding"),
    ]
