"""The banner of ``mqstore run`` while the services stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pydantic import SecretStr

from mqstore.cli.banner import await_ready
from mqstore.service.settings import Settings


@contextmanager
def serving(status: str, called: threading.Event) -> Iterator[str]:
    """A service that has this status, by its address; ``called`` is set at each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            called.set()
            body = b'{"status":"%b","detail":"no shard is ready"}' % status.encode()
            self.send_response(200 if status == "ready" else 503)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_services_that_stop_while_the_coordinator_starts_have_no_banner() -> None:
    settings = Settings(
        token_produce=SecretStr("x" * 32)
    )  # the banner then reads nothing of the store
    called, stops = threading.Event(), threading.Event()
    with serving("ready", called) as ready, serving("starting", stops) as starting:
        addresses = {"writer": ready, "query": ready, "coordinator": starting}
        assert await_ready(addresses, settings, stops.is_set) is None
    assert called.is_set()
