"""One connection to a service that lasts: a request after the other, with as little around them as
HTTP/1.1 allows (a tenth of what httpx takes for one)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

TIMEOUT_S: Final = 10.0
"""To connect, and until an answer is whole."""
ANSWER_SIZE_MAX: Final = 64 << 20
_PORTS: Final = {"http": 80, "https": 443}


class Connection:
    """Used on one event loop, for one request at a time. Connects when it is asked."""

    def __init__(
        self,
        url: str,
        *,
        token: Callable[[], str | None] = lambda: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Each request asks for its ``token``; ``tls`` as for ``mqstore.client.Client``."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._address = host, parts.port or _PORTS[parts.scheme]
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._token = token
        self._head = f"host: {parts.netloc}\r\ncontent-type: application/json\r\n"
        self._line: _Line | None = None

    async def post(self, path: str, content: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError: then it may have been done."""
        token = self._token()
        authorization = "" if token is None else f"authorization: Bearer {token}\r\n"
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\n{self._head}{authorization}"
            f"content-length: {len(content)}\r\n\r\n"
        )
        if self._line is None or self._line.is_over:
            self._line = await self._connected()
        return await self._line.asked(head.encode() + content)

    def close(self) -> None:
        if self._line is not None:
            self._line.end("it was closed here")

    async def _connected(self) -> _Line:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_S):
            _, line = await loop.create_connection(_Line, *self._address, ssl=self._tls)
        return line


class _Line(asyncio.Protocol):
    """One TCP connection, from its beginning to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._told: asyncio.Future[tuple[int, bytes]] | None = None
        """Whoever waits for an answer."""
        self._body = b""
        self._transport: asyncio.Transport | None = None

    @property
    def is_over(self) -> bool:
        return self._transport is None

    async def asked(self, request: bytes) -> tuple[int, bytes]:
        """Raises OSError."""
        assert self._transport is not None
        told = self._told = self._loop.create_future()
        patience = self._loop.call_later(TIMEOUT_S, self.end, "it took too long")
        self._transport.write(request)
        try:
            answer: tuple[int, bytes] = await told
            return answer
        finally:
            patience.cancel()
            if told.cancelled():  # its answer would be taken for that to the next one
                self.end("nobody waits for its answer")

    def end(self, why: str) -> None:
        """Whoever waits is told why."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        told, self._told = self._told, None
        if told is not None and not told.done():
            told.set_exception(ConnectionError(f"no answer of the service: {why}"))

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(str(error or "it closed the connection"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.end(f"that was no HTTP: {error}")

    # what httptools calls

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > ANSWER_SIZE_MAX:
            self.end(f"it is more than {ANSWER_SIZE_MAX} bytes")

    def on_message_complete(self) -> None:
        told, self._told = self._told, None
        if told is None or not self._parser.should_keep_alive():
            self.end("nobody asked for it")
        if told is not None and not told.done():
            told.set_result((self._parser.get_status_code(), self._body))
