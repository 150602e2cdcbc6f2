"""Calls of producers, against a real server that answers what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from mqstore.client.callbacks import (
    REPLAY_WINDOW_S,
    SIGNATURE_HEADER,
    SignatureRefused,
    check_signature,
    signature,
)
from mqstore.coordinator.callbacks import (
    ANSWER_SIZE_MAX,
    Caller,
    CheckAnswer,
    NotSent,
    Unanswered,
    Wanted,
)
from mqstore.coordinator.targets import Target
from mqstore.service.settings import Settings

SECRET = "s" * 32
COMMIT = json.dumps({"decision": "commit", "reason": "paid"}).encode()
Answering = Callable[[BaseHTTPRequestHandler, bytes], None]
SOON_S = 2.0
"""In which a request is sent, however busy the machine is."""


@contextlib.contextmanager
def serving(
    answer: Answering, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Its port, and the headers of each request."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append({name.lower(): value for name, value in self.headers.items()})
            with contextlib.suppress(OSError):
                answer(self, body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients break off here
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(body: bytes, status: int = 200, **headers: str) -> Answering:
    def answer(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def breaking_off(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def send(url: str, body: bytes = b"{}", **settings: object) -> CheckAnswer:
    async def once() -> CheckAnswer:
        caller = Caller(Settings.model_validate(settings))
        try:
            return await caller.send(Target(httpx.URL(url), "127.0.0.1"), SECRET, body)
        finally:
            await caller.close()

    return asyncio.run(once())


def test_the_question_is_signed_and_the_answer_read() -> None:
    bodies = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        bodies.append(body)
        answering(COMMIT)(handler, body)

    with serving(answer) as (port, seen):
        found = send(f"http://billing.example.org:{port}/checks", b'{"a": 1}')
    assert (found.decision, found.reason) == (Wanted.COMMIT, "paid")
    assert bodies == [b'{"a": 1}']
    assert seen[0]["host"] == f"billing.example.org:{port}"
    header = seen[0][SIGNATURE_HEADER]
    at_s = int(header.partition(",")[0].removeprefix("t="))
    check_signature(SECRET, bodies[0], header, at_s + REPLAY_WINDOW_S)
    for secret, body, now_s in (
        ("t" * 32, bodies[0], at_s),
        (SECRET, b"{}", at_s),
        (SECRET, bodies[0], at_s + REPLAY_WINDOW_S + 1),
        (SECRET, bodies[0], at_s - REPLAY_WINDOW_S - 1),
    ):
        with pytest.raises(SignatureRefused):
            check_signature(secret, body, header, now_s)
    with pytest.raises(SignatureRefused):
        check_signature(SECRET, b"", "", at_s)
    assert signature(SECRET, b"x", 1) != signature(SECRET, b"x", 2)


def test_the_certificate_must_be_of_the_name_not_of_the_address(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("billing.example.org").configure_cert(context)
    with serving(answering(COMMIT), context) as (port, _):
        ca = tmp_path / "ca.pem"
        url = f"https://billing.example.org:{port}/"
        assert send(url, callback_ca=ca).decision is Wanted.COMMIT
        with pytest.raises(NotSent):
            send(f"https://other.example.org:{port}/", callback_ca=ca)
        with pytest.raises(NotSent):
            send(url)


@pytest.mark.parametrize(
    "answer",
    [
        answering(COMMIT, 302, location="http://127.0.0.1:1/"),
        answering(COMMIT, 500),
        answering(COMMIT, 201),
        answering(b"commit"),
        answering(b'{"decision": "maybe"}'),
        answering(b'{"decision": "commit", "more": "' + b"x" * ANSWER_SIZE_MAX + b'"}'),
        breaking_off,
    ],
    ids=["redirect", "failed", "created", "no json", "no decision", "long", "broken off"],
)
def test_what_is_no_answer_is_none_and_nothing_else_is_called(answer: Answering) -> None:
    with serving(answer) as (port, seen), pytest.raises(Unanswered):
        send(f"http://p:{port}/")
    assert len(seen) == 1


def test_a_producer_that_says_nothing_is_waited_for_so_long_and_no_longer() -> None:
    ended = threading.Event()

    def wait(*_: object) -> None:
        ended.wait(30)

    with serving(wait) as (port, seen):
        with pytest.raises(Unanswered):
            send(f"http://p:{port}/", callback_timeout_s=SOON_S)
        ended.set()
    assert len(seen) == 1


def test_one_that_drips_its_answer_is_not_waited_for_either() -> None:
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    with serving(drip) as (port, _):
        with pytest.raises(Unanswered):
            send(f"http://p:{port}/", callback_timeout_s=SOON_S)
        ended.set()


def test_a_producer_that_is_down_received_no_check() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(NotSent):
            send(f"http://p:{closed.getsockname()[1]}/")
