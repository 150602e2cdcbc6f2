"""A small HTTP server, at which the coordinator calls an application about its transactions.

Built on the standard library. Every request must be signed with the producer's secret
(``callbacks``); a request that is not, too long or too slow gets no answer of the application.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, Final, Self

from pydantic import ValidationError

from mqstore.client.callbacks import SIGNATURE_HEADER, SignatureRefused, check_signature
from mqstore.wire.transactions import Transaction

log = logging.getLogger(__name__)

BODY_MAX: Final = 1 << 20
"""Bytes of a request; the transaction in it has 100 messages at most."""
TIMEOUT_S: Final = 10.0
"""Seconds for which a connection may be idle."""
CONNECTIONS_MAX: Final = 64
"""Connections that are served at one time; a coordinator opens as many for each shard."""


class CheckListener:
    """Listens for checks in threads of its own, while it is used in a with statement."""

    def __init__(
        self, host: str, port: int, secret: str, answer: Callable[[Transaction], str]
    ) -> None:
        """``answer`` returns the decision; it is called on several threads. Port 0 is a free one.

        Raises OSError for an address that cannot be bound.
        """
        self._server = _Server(host, port, secret, answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="transaction checks", daemon=True
        )

    @property
    def address(self) -> str:
        """The address that it listens at, as ``host:port``."""
        host, port = self._server.server_address[:2]
        text = host if isinstance(host, str) else host.decode()
        return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self, host: str, port: int, secret: str, answer: Callable[[Transaction], str]
    ) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.secret = secret
        self.answer = answer
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, unless there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that failed."""
        log.debug("a connection for checks failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S
    server_version = "mqstore-client"
    sys_version = ""

    def do_POST(self) -> None:
        """Answer one check."""
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= BODY_MAX):
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE if length else HTTPStatus.LENGTH_REQUIRED
            )
            return
        body = self.rfile.read(int(length))
        try:
            header = self.headers.get(SIGNATURE_HEADER, "")
            check_signature(self.server.secret, body, header, time.time())
        except SignatureRefused as refused:
            log.warning("a check was refused: %s", refused)
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        try:
            transaction = Transaction.model_validate_json(body)
        except ValidationError:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        self._reply(HTTPStatus.OK, {"decision": self.server.answer(transaction)})

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._reply(status, {"title": status.phrase})

    def _reply(self, status: HTTPStatus, content: dict[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (of the base)
        """Log nothing for each request."""
