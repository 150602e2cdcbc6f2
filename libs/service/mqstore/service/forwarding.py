"""Requests that one process forwards to another for a client, and the responses to them.

A request is forwarded once at most: it then carries the header ``x-mqstore-forwarded``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.responses import Response
from starlette.types import Scope

from mqstore.service import logs

FORWARDED: Final = "x-mqstore-forwarded"
"""Header of a forwarded request; its value names the shard that forwarded it."""
_FORWARDED: Final = FORWARDED.encode()
_REQUEST_HEADERS: Final = frozenset(
    {b"authorization", b"content-type", b"accept", b"range", b"if-match", b"last-event-id"}
    | {b"x-mqstore-crc32c", b"idempotency-key"}
)
"""Request headers that are forwarded; the others concern this connection only."""
_OWN_RESPONSE_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
    | {"x-request-id"}
)
"""Response headers that this process sets itself, so that they are not forwarded."""


class RelayedResponse(Exception):
    """The response of another process. Raise it to send that response to the client."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request as it is sent to another process."""

    method: str
    target: str
    """Path and query as they came, percent-encoded."""
    headers: Mapping[str, str]
    content: bytes = b""

    @classmethod
    def of(cls, scope: Scope, by: str | None, content: bytes = b"") -> ForwardedRequest:
        """Build it from a client's request, with the client's token.

        ``by`` names the process that forwards it; None lets the receiver forward it once more.
        """
        query = scope["query_string"].decode("latin-1")
        target = quote(scope["path"], safe="/:")
        return cls(
            scope["method"],
            f"{target}?{query}" if query else target,
            select_request_headers(scope) | ({} if by is None else {FORWARDED: by}),
            content,
        )

    def arguments(self, base: str) -> dict[str, Any]:
        """Return the arguments of httpx for this request to the service at ``base``."""
        return {
            "method": self.method,
            "url": base.rstrip("/") + self.target,
            "headers": dict(self.headers),
            "content": self.content,
        }


def was_forwarded(scope: Scope) -> bool:
    """Return whether another process forwarded a request."""
    return any(name == _FORWARDED for name, _ in scope["headers"])


def select_request_headers(scope: Scope) -> dict[str, str]:
    """Return the headers to forward, with the request's id, by which all logs name it."""
    found = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _REQUEST_HEADERS
    }
    return found | {"x-request-id": logs.request_id.get()}


def select_response_headers(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers of a response that are sent to the client."""
    return {name: value for name, value in headers.items() if name not in _OWN_RESPONSE_HEADERS}
