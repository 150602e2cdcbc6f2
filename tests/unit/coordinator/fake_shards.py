"""Store-writers that reply as a test wants, over real HTTP, and a coordinator for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import httpx

from mqstore.coordinator.service import CoordinatorService
from mqstore.service import problems
from mqstore.service.problems import ProblemType
from mqstore.service.settings import Settings

T = TypeVar("T")
NOWHERE = "http://127.0.0.1:1"


@dataclass
class Received:
    """A request that a fake shard got."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """``body`` bytes go as they are, other values as JSON."""

    status: int = 200
    body: Any = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


Replying = Callable[[Received], Answer | None]
"""None: the connection is closed without a reply."""


def problem(kind: ProblemType, **extra: object) -> Answer:
    body = {"type": kind.urn, "title": kind.title, "status": kind.status, "detail": "because"}
    return Answer(kind.status, body | extra, {"content-type": problems.CONTENT_TYPE})


@dataclass
class FakeShard:
    """``seen`` has no probes of its health."""

    reply: Replying
    url: str = ""
    seen: list[Received] = field(default_factory=list)
    is_ready: bool = True
    arrived: SimpleQueue[Received] = field(default_factory=SimpleQueue)
    """As ``seen``, for a test that waits."""

    def received(self, path: str) -> list[Received]:
        return [each for each in self.seen if each.target.partition("?")[0] == path]

    async def next(self) -> Received:
        """The next request; waits for it."""
        return await asyncio.to_thread(self.arrived.get, timeout=60)

    def _answer(self, received: Received) -> Answer | None:
        if received.target == "/healthz/serving":
            return Answer(200 if self.is_ready else 503)
        self.seen.append(received)
        self.arrived.put(received)
        return self.reply(received)

    @contextlib.contextmanager
    def running(self) -> Iterator[FakeShard]:
        shard = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                found = shard._answer(Received(self.command, self.path, headers, body))
                if found is None:
                    self.close_connection = True
                    return
                content = (
                    found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
                )
                self.send_response(found.status)
                self.send_header("content-length", str(len(content)))
                for name, value in ({"content-type": "application/json"} | found.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self._handle()

            def do_POST(self) -> None:
                self._handle()

            def do_PUT(self) -> None:
                self._handle()

            def do_DELETE(self) -> None:
                self._handle()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Clients disconnect here."""

        server = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextlib.contextmanager
def fakes(*replies: Replying | None) -> Iterator[list[FakeShard]]:
    """Running shards; None: one that cannot be reached."""
    with contextlib.ExitStack() as stack:
        yield [
            FakeShard(lambda _: None, NOWHERE)
            if reply is None
            else stack.enter_context(FakeShard(reply).running())
            for reply in replies
        ]


@dataclass
class Bench:
    """A coordinator, and a client of it. ``started`` runs its background work."""

    service: CoordinatorService
    http: httpx.AsyncClient


@contextlib.asynccontextmanager
async def coordinator(
    shards: list[FakeShard], tmp_path: Path, *, started: bool = False, **settings: object
) -> AsyncIterator[Bench]:
    listed = tmp_path / "shards.json"
    entries = [
        {
            "shard": number,
            "storeHost": f"10.9.0.{number}:10911",
            "writerUrl": each.url,
            "queryUrl": each.url,
        }
        for number, each in enumerate(shards)
    ]
    listed.write_text(json.dumps({"shards": entries}))
    given = {"shard_timeout_s": 20.0, **settings, "shards_file": listed}
    service = CoordinatorService(Settings.model_validate(given))
    service.health.ready()
    await asyncio.gather(*(shard.probe() for shard in service.shards))
    if started:
        await service.start()
    transport = httpx.ASGITransport(app=service.front)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=60
        ) as http:
            yield Bench(service, http)
    finally:
        service.interrupt()
        await service.stop()


def run(
    shards: list[FakeShard],
    tmp_path: Path,
    act: Callable[[Bench], Awaitable[T]],
    **settings: Any,
) -> T:
    """Run ``act`` with a coordinator of these shards, and return its result."""

    async def live() -> T:
        async with coordinator(shards, tmp_path, **settings) as bench:
            return await act(bench)

    return asyncio.run(asyncio.wait_for(live(), 120))


def view(transaction_id: str, born_ms: int = 1, group: str = "g") -> dict[str, Any]:
    """A TransactionView as a shard shows it."""
    return {
        "transactionId": transaction_id,
        "shard": int(transaction_id.partition("-")[0]),
        "state": "pending",
        "producerGroup": group,
        "messages": 1,
        "bornTimestamp": born_ms,
        "checksSent": 0,
        "checks": [],
        "decidedAt": None,
        "why": "",
        "halves": [],
    }
