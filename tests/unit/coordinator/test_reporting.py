"""How a coordinator follows a shard's events, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from queue import SimpleQueue
from time import time
from typing import Any, cast

import pytest

from mqstore.client import AsyncClient
from mqstore.coordinator import reporting
from mqstore.coordinator.pod_notes import Note
from mqstore.coordinator.reporting import BURST, Rate, ShardReporter
from mqstore.wire.examples import replication as examples
from mqstore.wire.replication import REPLICATION

TOPIC = b'retry: 1\n\nid: 5f0c2a1e-7\nevent: topic\ndata: {"kind": "topic", "atMs": 1}\n\n'
LastIds = SimpleQueue[str | None]
"""The last event's id of each request."""


@contextmanager
def writer_that_refuses_the_second_request(
    last_ids: LastIds, events: bytes = TOPIC, replication: bytes | None = None
) -> Iterator[str]:
    """Its URL. All others get the events behind the last that they saw, and their end.
    ``replication``: its state; None: it is of a release without replicas."""

    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == REPLICATION.path:
                self._send_replication()
                return
            self.send_response(403 if next(numbers) == 2 else 200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            after = self.headers["last-event-id"]
            if after is None:
                self.wfile.write(events)
            else:
                self.wfile.write(
                    events.partition(f"id: {after}\n".encode())[2].partition(b"\n\n")[2]
                )
            last_ids.put(after)

        def _send_replication(self) -> None:
            self.send_response(404 if replication is None else 200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(replication or b"{}")

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


def test_after_a_refusal_in_between_no_event_is_reported_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporting, "LOOK_S", 0.0)
    last_ids = LastIds()

    async def follow(url: str) -> None:
        reporter = ShardReporter(0, cast(Any, None), Rate())
        async with AsyncClient(url) as client:
            following = asyncio.create_task(reporter.follow(client))
            found = [await asyncio.to_thread(last_ids.get, timeout=30) for _ in range(3)]
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        assert found == [None, "5f0c2a1e-7", "5f0c2a1e-7"]

    with writer_that_refuses_the_second_request(last_ids) as url:
        asyncio.run(asyncio.wait_for(follow(url), 60))


def event(number: int, data: str) -> bytes:
    return f"id: 5f0c2a1e-{number}\nevent: x\ndata: {data}\n\n".encode()


def paused(number: int) -> bytes:
    """An event that has a note of its own: each is of another process."""
    at_ms = int(time() * 1000)
    data = f'{{"kind": "writes", "atMs": {at_ms}, "paused": true, "reason": "r{number}"}}'
    return f"id: {number:08x}-1\nevent: writes\ndata: {data}\n\n".encode()


class Pods:
    """The Events of a pod; those of ``there`` are another coordinator's."""

    def __init__(self, there: set[str]) -> None:
        self.there = there
        self.made: SimpleQueue[str] = SimpleQueue()

    def pod_of(self, shard: int, leader: str | None) -> str:
        return leader or f"pod-{shard}"

    def write(self, pod: str, note: Note) -> bool:
        if note.name in self.there:
            return False
        self.made.put(f"{pod}.{note.name}")
        return True


def first_written(events: bytes, pods: Pods, replication: bytes | None = None) -> str:
    """The name of the first Event that is made new."""

    async def follow(url: str) -> str:
        reporter = ShardReporter(0, cast(Any, pods), Rate())
        async with AsyncClient(url) as client:
            following = asyncio.create_task(reporter.follow(client))
            made = await asyncio.to_thread(pods.made.get, timeout=30)
            assert not following.done()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        return made

    with writer_that_refuses_the_second_request(LastIds(), events, replication) as url:
        return asyncio.run(asyncio.wait_for(follow(url), 60))


@pytest.mark.parametrize(
    "data",
    [
        '{"kind": "disk", "atMs": 1}',
        '{"kind": "disk", "atMs": "x", "refuses": 1, "usedPercent": "full"}',
        '{"kind": "index", "atMs": 1, "done": "all", "total": null}',
        '{"kind": "failed", "atMs": "x", "reason": "r"}',
        '{"kind": "writes"}',
        "[]",
        "{",
    ],
)
def test_an_event_of_another_shape_is_passed_over(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "LOOK_S", 0.0)
    first = b"retry: 1\n\n"
    assert first_written(first + event(1, data) + paused(7), Pods(set())) == "pod-0.00000007-1"


def test_a_replay_of_what_is_there_leaves_the_burst_to_what_is_new() -> None:
    replayed = range(3 * BURST)
    pods = Pods({f"{number:08x}-1" for number in replayed})
    events = b"retry: 1\n\n" + b"".join(map(paused, [*replayed, 3 * BURST]))
    assert first_written(events, pods) == f"pod-0.{3 * BURST:08x}-1"


def test_events_of_replicas_are_those_of_the_leaders_pod() -> None:
    election = {
        "name": "shop-shard-0-2/0a1b2c3d",
        "leader": "shop-shard-0-2/0a1b2c3d",
        "leaderUrl": "http://10.1.2.3:8081",
        "epoch": 4,
        "inSync": ["shop-shard-0-2/0a1b2c3d"],
        "reason": None,
    }
    state = json.dumps({**examples.LEADER, "election": election}).encode()
    written = first_written(b"retry: 1\n\n" + paused(7), Pods(set()), state)
    assert written == "shop-shard-0-2.00000007-1"
