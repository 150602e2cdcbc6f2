"""How the coordinator that leads follows a shard's events, over real HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from queue import SimpleQueue
from typing import Any, cast

import pytest

from mqstore.client import AsyncClient
from mqstore.coordinator import reporting
from mqstore.coordinator.reporting import Rate, ShardReporter

TOPIC = b'retry: 1\n\nid: 5f0c2a1e-7\nevent: topic\ndata: {"kind": "topic", "atMs": 1}\n\n'
Asked = SimpleQueue[str | None]
"""The last event's id of each request."""


@contextmanager
def writer_that_refuses_the_second_request(asked: Asked) -> Iterator[str]:
    """Its URL. All others get one event, and their end."""

    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403 if next(numbers) == 2 else 200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(TOPIC)
            asked.put(self.headers["last-event-id"])

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_refusal_in_between_has_no_event_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "LOOK_S", 0.0)
    asked = Asked()

    async def follow(url: str) -> None:
        reporter = ShardReporter(0, cast(Any, None), Rate())
        async with AsyncClient(url) as client:
            following = asyncio.create_task(reporter.follow(client))
            found = [await asyncio.to_thread(asked.get, timeout=30) for _ in range(3)]
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        assert found == [None, "5f0c2a1e-7", "5f0c2a1e-7"]

    with writer_that_refuses_the_second_request(asked) as url:
        asyncio.run(asyncio.wait_for(follow(url), 60))
