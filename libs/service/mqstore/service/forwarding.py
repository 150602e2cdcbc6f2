"""What is passed on when one process asks another on a client's behalf: once, and as itself."""

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
"""Header of a request that was passed on once, by whom; it is never passed on again."""
_FORWARDED: Final = FORWARDED.encode()
_ASKED: Final = frozenset(
    {b"authorization", b"content-type", b"accept", b"range", b"if-match", b"last-event-id"}
    | {b"x-mqstore-crc32c", b"idempotency-key"}
)
"""Of a request; all else is between the client and us."""
_NOT_ANSWERED: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
    | {"x-request-id"}
)
"""Of an answer: what this process says by itself."""


class RelayedResponse(Exception):
    """Raised instead of answering: another process's answer."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request as another process is asked it."""

    method: str
    target: str
    """Path and query as they came, percent-encoded."""
    headers: Mapping[str, str]
    content: bytes = b""

    @classmethod
    def of(cls, scope: Scope, by: str | None, content: bytes = b"") -> ForwardedRequest:
        """A client's request with the client's token. ``by`` names the process that forwards it;
        None lets the receiving process forward it once more."""
        query = scope["query_string"].decode("latin-1")
        target = quote(scope["path"], safe="/:")
        return cls(
            scope["method"],
            f"{target}?{query}" if query else target,
            carried(scope) | ({} if by is None else {FORWARDED: by}),
            content,
        )

    def at(self, base: str) -> dict[str, Any]:
        """As httpx takes it."""
        return {
            "method": self.method,
            "url": base.rstrip("/") + self.target,
            "headers": dict(self.headers),
            "content": self.content,
        }


def was_forwarded(scope: Scope) -> bool:
    return any(name == _FORWARDED for name, _ in scope["headers"])


def carried(scope: Scope) -> dict[str, str]:
    """Of a request's headers, what goes along; with its id, so that all logs name it alike."""
    found = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _ASKED
    }
    return found | {"x-request-id": logs.request_id.get()}


def returned(headers: httpx.Headers) -> dict[str, str]:
    """Of an answer's headers, what goes back."""
    return {name: value for name, value in headers.items() if name not in _NOT_ANSWERED}
