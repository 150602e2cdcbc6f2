"""One connection to a service that lasts: a request after the other, with as little around them as
HTTP/1.1 allows (a tenth of what httpx takes for one)."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httptools

TIMEOUT_S: Final = 10.0
"""Without a byte from the service."""
IDLE_S: Final = 1.0
"""After so long it is looked whether the service has closed the connection."""
RECEIVE_SIZE: Final = 64 << 10
ANSWER_SIZE_MAX: Final = 64 << 20
_PORTS: Final = {"http": 80, "https": 443}


class Connection:
    """Blocking, used by one thread. Connects when it is asked for something."""

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
        self._socket: socket.socket | None = None
        self._used_at = 0.0

    def post(self, path: str, content: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError: then it may have been done."""
        token = self._token()
        authorization = "" if token is None else f"authorization: Bearer {token}\r\n"
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\n{self._head}{authorization}"
            f"content-length: {len(content)}\r\n\r\n"
        )
        try:
            answer = self._exchange(self._connected(), head.encode() + content)
        except BaseException:
            self.close()
            raise
        if not answer.keeps_alive:
            self.close()
        self._used_at = time.monotonic()
        return answer.status, answer.body

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        is_idle = time.monotonic() - self._used_at > IDLE_S
        if self._socket is not None and is_idle and _is_over(self._socket):
            self.close()
        if self._socket is None:
            plain = socket.create_connection(self._address, TIMEOUT_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(plain, server_hostname=self._address[0])
        return self._socket

    def _exchange(self, connected: socket.socket, request: bytes) -> _Answer:
        connected.sendall(request)
        answer = _Answer()
        while not answer.is_whole:
            data = connected.recv(RECEIVE_SIZE)
            if not data:
                raise ConnectionError("the service closed the connection before it answered")
            answer.feed(data)
        return answer


def _is_over(connected: socket.socket) -> bool:
    """Whether the service has closed it, or sent what nobody asked for."""
    connected.settimeout(0)
    try:
        connected.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        connected.settimeout(TIMEOUT_S)
    return True


class _Answer:
    """What httptools calls while it reads."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.is_whole = False
        self.keeps_alive = True
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises ConnectionError for what is no answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the service answered no HTTP: {error}") from error
        if len(self.body) > ANSWER_SIZE_MAX:
            raise ConnectionError(f"the service answered more than {ANSWER_SIZE_MAX} bytes")

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.is_whole = True
