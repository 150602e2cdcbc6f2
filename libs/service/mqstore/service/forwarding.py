"""Requests that one process forwards to another for a client, and the responses to them.

A request with the header ``x-mqstore-forwarded`` is not forwarded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mqstore.service import logs
from mqstore.service.auth import Authenticator
from mqstore.service.http import Reply, given_id
from mqstore.service.read_conditions import AT_LEAST
from mqstore.service.relay_connections import RelayConnections, RelayedReply
from mqstore.service.sockets import format_address
from mqstore.storage.errors import MessageInvalid
from mqstore.storage.formats import parse_host

FORWARDED: Final = "x-mqstore-forwarded"
"""Header of a forwarded request; its value names the shard that forwarded it."""
_FORWARDED: Final = FORWARDED.encode()
CLIENT: Final = "x-mqstore-client"
"""Header of a forwarded request: the client as ``address:port``, IPv6 in brackets."""
CLIENT_PROOF: Final = "x-mqstore-client-proof"
"""Header of a forwarded request: the system token of the process that states ``CLIENT``."""
_CLIENT, _CLIENT_PROOF = CLIENT.encode(), CLIENT_PROOF.encode()
_REQUEST_HEADERS: Final = frozenset(
    {b"authorization", b"content-type", b"accept", b"range", b"if-match", b"last-event-id"}
    | {b"x-mqstore-crc32c", b"idempotency-key", AT_LEAST}
)
"""Request headers that are forwarded; the others concern this connection only."""
_OWN_RESPONSE_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
    | {"x-request-id", "x-content-type-options"}
)
"""Response headers that this process sets itself, so that they are not forwarded."""
_OWN_RESPONSE_FIELDS: Final = frozenset(name.encode() for name in _OWN_RESPONSE_HEADERS)


class RelayedResponse(Exception):
    """The response of another process. Raise it to send that response to the client."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class StreamedResponse(StreamingResponse):
    """The response of another process, streamed to the client; both connections end together."""

    def __init__(self, answer: httpx.Response) -> None:
        headers = select_response_headers(answer.headers)
        length = answer.headers.get("content-length")
        super().__init__(
            answer.aiter_raw(),
            answer.status_code,
            headers=headers if length is None else headers | {"content-length": length},
        )
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request as it is sent to another process."""

    method: str
    target: str
    """Path and query as they came, percent-encoded."""
    headers: Mapping[str, str]
    content: bytes = b""
    client: tuple[str, int] | None = None
    """Which connection it came over."""

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
            scope.get("client"),
        )

    def by(self, service: str) -> ForwardedRequest:
        """Return the same request, which its receiver does not forward: ``service`` did."""
        return replace(self, headers={**self.headers, FORWARDED: service})

    def without_own_id(self, scope: Scope) -> ForwardedRequest:
        """Return the same request without an id that its client did not give: the reply has the
        one that its receiver generates. Heads that are alike are parsed once."""
        headers = {name: value for name, value in self.headers.items() if name != "x-request-id"}
        given = given_id(scope["headers"])
        return replace(self, headers=headers | ({} if given is None else {"x-request-id": given}))

    def with_client(self, client: tuple[str, int], token: str | None) -> ForwardedRequest:
        """Return the same request with the client's address, which a system ``token`` proves."""
        proof = {} if token is None else {CLIENT_PROOF: token}
        return replace(self, headers={**self.headers, CLIENT: format_address(client), **proof})

    def encode(self, service: RelayConnections) -> bytes:
        """Return the bytes of this request to a service.

        Raises ValueError for a header or target with a line break, or with a character that HTTP
        cannot send: it would begin another header, or another request.
        """
        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()])
        length = f"content-length: {len(self.content)}\r\n" if self.method != "GET" else ""
        head = (
            f"{self.method} {service.prefix}{self.target} HTTP/1.1\r\nhost: {service.host}\r\n"
            f"accept-encoding: identity\r\n{fields}{length}\r\n"
        )
        lines = 4 + len(self.headers) + bool(length)
        if head.count("\r") != lines or head.count("\n") != lines or "\0" in head:
            raise ValueError("a header of the request has a line break, which cannot be passed on")
        return head.encode("latin-1") + self.content

    def arguments(self, base: str) -> dict[str, Any]:
        """Return the arguments of httpx for this request to the service at ``base``."""
        return {
            "method": self.method,
            "url": base.rstrip("/") + self.target,
            "headers": {"accept-encoding": "identity", **self.headers},
            "content": self.content,
        }


def was_forwarded(scope: Scope) -> bool:
    """Return whether another process forwarded a request."""
    return any(name == _FORWARDED for name, _ in scope["headers"])


def read_client(scope: Scope, auth: Authenticator) -> tuple[str, int]:
    """Return the address of the client that sent a request.

    Of a forwarded request it is the one that the forwarding process states, if that process shows a
    system token; without tokens every process of this machine may state it. Otherwise it is the
    address of the connection.
    """
    peer = scope.get("client") or ("127.0.0.1", 0)
    headers = dict(scope["headers"])
    stated = headers.get(_CLIENT)
    if stated is None:
        return peer[0], peer[1]
    is_proven = auth.is_system(headers.get(_CLIENT_PROOF, b""))
    if is_proven or (not auth.enabled and _FORWARDED in headers):
        with suppress(ValueError, MessageInvalid):
            host = parse_host(stated.decode("latin-1"))
            return host.address_text, host.port
    return peer[0], peer[1]


def select_request_headers(scope: Scope) -> dict[str, str]:
    """Return the headers to forward, with the request's id, by which all logs name it."""
    found = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _REQUEST_HEADERS
    }
    return found | {"x-request-id": logs.request_id.get()}


def reply_of(relayed: RelayedReply) -> Reply:
    """Return the reply of another service as this one's: its log has the request under the id that
    the reply names."""
    content_type, request_id, kept = b"application/json", None, []
    for name, value in relayed.headers:
        if name == b"content-type":
            content_type = value
        elif name == b"x-request-id":
            request_id = value.decode("latin-1")
        elif name not in _OWN_RESPONSE_FIELDS:
            kept.append((name, value))
    return Reply(relayed.body, relayed.status, content_type, tuple(kept), request_id)


def select_response_headers(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers of a response that are sent to the client."""
    return {name: value for name, value in headers.items() if name not in _OWN_RESPONSE_HEADERS}
