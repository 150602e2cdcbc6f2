"""uvicorn's HTTP protocol with bounds on what one connection may make it hold."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mqstore.service import problems
from mqstore.service.problems import Problem, ProblemType

_ENCODING_OVERHEAD = 8
"""Bytes on the wire for one byte of body, at most: chunks of one byte are six."""


class BoundedProtocol(HttpToolsProtocol):
    """Drops a connection with an endless head, body or trailer.

    httptools itself collects lines of any length; uvicorn waits for a request line for ever.
    """

    max_header_size: ClassVar[int]
    max_message_size: ClassVar[int]
    """Bytes on the wire from the request line to the end of the body."""
    head_timeout_s: ClassVar[float]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._received = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # as in uvicorn: its base class says BaseTransport
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._watch_head()
            if self._received > self.max_header_size:
                self._refuse(problems.HEADERS_TOO_LARGE, f"more than {self.max_header_size} bytes")
        elif self._received > self.max_message_size:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._received = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unwatch_head()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here too; nobody reads them.
        if self._in_head:
            super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        self._refuse(problems.BAD_PARAMETER, "the request is no valid HTTP/1.1")

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, kind: ProblemType, detail: str) -> None:
        body = Problem(kind, detail).body("")
        head = (
            f"HTTP/1.1 {kind.status} {kind.title}\r\n"
            f"content-type: {problems.CONTENT_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def bounded_protocol(
    *, max_header_size: int, max_request_size: int, head_timeout_s: float
) -> type[BoundedProtocol]:
    """The protocol class for these limits: uvicorn wants a class."""

    class Configured(BoundedProtocol):
        pass

    Configured.max_header_size = max_header_size
    Configured.max_message_size = max_header_size + _ENCODING_OVERHEAD * max_request_size
    Configured.head_timeout_s = head_timeout_s
    return Configured
