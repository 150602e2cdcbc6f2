"""A fork of a process opens its own connections, and does not wait for threads that it lacks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mqstore.wire.examples import consumers as examples
from tests import forked_processes

TIMEOUT_S = 60
PROGRAM = """
import asyncio, os, sys
from mqstore.client import AsyncClient, Client, ClientError

url = sys.argv[1]
check = lambda transaction: "unknown"

def in_fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            print("done", flush=True)
        except ClientError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

"""
WORKERS = {
    "a producer": """
with Client(url, url).producer("t") as worker:
    in_fork(lambda: worker.send("x").result(1))
""",
    "a producer's flush": """
with Client(url, url).producer("t") as worker:
    in_fork(lambda: worker.flush(1))
""",
    "a message sent before": """
with Client(url, url).producer("t", linger_ms=60_000) as worker:
    sent = worker.send("x")
    in_fork(sent.result)
    assert sent.cancel()
""",
    "a producer that starts in the fork": """
worker = Client(url, url).producer("t")
in_fork(worker.__enter__)
""",
    "a consumer": """
with Client(url, url).consumer("g", "t") as worker:
    in_fork(lambda: next(worker))
""",
    "a message received before": """
with Client(url, url).consumer("g", "t") as worker:
    message = next(worker)
    in_fork(message.ack)
""",
    "an ordered consumer": """
with Client(url, url).ordered_consumer("g", "t") as worker:
    in_fork(lambda: next(worker))
""",
    "a producer of transactions": """
with Client(url, url, coordinator_url=url).transactional_producer("g", check) as worker:
    in_fork(lambda: worker.begin("x", "t"))
""",
    "an asynchronous producer": """
async def make():
    async with AsyncClient(url, url).producer("t") as worker:
        return worker
async def use(worker):
    await worker.send("x")
worker = asyncio.run(make())
in_fork(lambda: asyncio.run(use(worker)))
""",
    "an asynchronous consumer": """
async def make():
    async with AsyncClient(url, url).consumer("g", "t") as worker:
        return worker
async def use(worker):
    await anext(worker)
worker = asyncio.run(make())
in_fork(lambda: asyncio.run(use(worker)))
""",
    "an asynchronous producer of transactions": """
async def make():
    async with AsyncClient(url, coordinator_url=url).transactional_producer("g", check) as worker:
        return worker
async def use(worker):
    await worker.begin("x", "t")
worker = asyncio.run(make())
in_fork(lambda: asyncio.run(use(worker)))
""",
    "a stream": """
events = Client(url, url).events()
next(events)
in_fork(lambda: next(events))
""",
}
CLIENTS = {
    "Client": """
client = Client(url, url)
client.topics()
in_fork(client.topics)
client.topics()
""",
    "AsyncClient": """
async def once(client):
    await client.topics()
client = AsyncClient(url, url)
asyncio.run(once(client))
in_fork(lambda: asyncio.run(once(client)))
""",
}
ENDS = {
    "producer": """
with Client(url, url).producer("t") as worker:
    in_fork(lambda: worker.__exit__(None, None, None))
""",
    "consumer": """
with Client(url, url).consumer("g", "t") as worker:
    in_fork(lambda: (worker.stop(), worker.__exit__(None, None, None)))
""",
}


class _Handler(BaseHTTPRequestHandler):
    """Replies of a service with no topic, one message and one event."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.accepted += 1  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if self.path.startswith("/v1/events"):
            data = json.dumps({"kind": "x", "atMs": 0})
            self._reply(f"id: 1\nevent: x\ndata: {data}\n\n".encode(), "text/event-stream", None)
            self.server.ended.wait()  # type: ignore[attr-defined]
        else:
            self._reply(b'{"topics": []}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        found = examples.RECEIVED if self.path.partition("?")[0].endswith(":receive") else {}
        self._reply(
            json.dumps({"messages": [], "transactions": [], "results": [], **found}).encode()
        )

    do_PUT = do_DELETE = do_POST  # noqa: N815 (of the base)

    def _reply(self, body: bytes, kind: str = "application/json", length: int | None = -1) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        if length is not None:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (of the base)
        pass


@contextmanager
def service() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.accepted = 0  # type: ignore[attr-defined]
        server.ended = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()


def run(program: str, server: ThreadingHTTPServer) -> str:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    process = forked_processes.start_program(PROGRAM + program, url)
    try:
        output, errors = process.communicate(TIMEOUT_S)
    finally:
        process.kill()
    assert process.wait() == 0, errors
    return output


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_of_another_process_raises_an_error_at_once(name: str) -> None:
    with service() as server:
        output = run(WORKERS[name], server)
    assert output.startswith("ClientError: the ")
    assert "a fork of it" in output
    assert "in each process" in output


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_opens_its_own_connection_in_a_fork(name: str) -> None:
    with service() as server:
        assert run(CLIENTS[name], server) == "done\n"
        assert server.accepted == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_worker_is_that_of_its_own_process(name: str) -> None:
    with service() as server:
        assert run(ENDS[name], server) == "done\n"
