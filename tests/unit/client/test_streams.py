"""Streams of events over connections that end, break and are refused, from a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from httpx_sse import ServerSentEvent

from mqstore.client import AsyncClient, Client, EventUnknown, ProblemError, Unreachable
from mqstore.client.events import store_events
from mqstore.client.retries import PAUSE_MAX_S
from mqstore.client.streams import Place

SOON = b"retry: 1\n\n"
BROKEN_OFF = 1 << 20
"""Bytes that are promised and do not come."""


@dataclass(frozen=True)
class Part:
    """The reply on one connection."""

    body: bytes = b""
    status: int = 200
    is_broken_off: bool = False
    content_type: str = "text/event-stream"


@dataclass
class Script:
    """Answers in turn, and the ids that clients went on behind."""

    parts: list[Part]
    last_ids: list[str | None] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """A client has closed the connection of an answer that stays open (the last one)."""
    stays_open: bool = False
    url: str = ""


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.last_ids.append(self.headers["last-event-id"])
            part = script.parts.pop(0)
            self.send_response(part.status)
            self.send_header("content-type", part.content_type)
            if part.is_broken_off:
                self.send_header("content-length", str(BROKEN_OFF))
            self.end_headers()
            self.wfile.write(part.body)
            if script.stays_open and not script.parts:
                self.rfile.read(1)
                script.left.set()

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextlib.contextmanager
def _serving(*parts: Part, stays_open: bool = False) -> Iterator[Script]:
    script = Script(list(parts), stays_open=stays_open)
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(script)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()


def _event(number: int) -> bytes:
    return b'id: %d\nevent: topic\ndata: {"kind":"topic","atMs":%d}\n\n' % (number, number)


Ids = list[str]
Follow = Callable[[str, Ids], None]
"""Adds the ids of events as they come, until the stream ends or raises."""


def _blocking(url: str, ids: Ids) -> None:
    with Client(url, url) as client:
        for event in client.events(patience_s=30):
            ids.append(event.id)


def _asynchronous(url: str, ids: Ids) -> None:
    async def follow() -> None:
        async with AsyncClient(url, url) as client:
            async for event in client.events(patience_s=30):
                ids.append(event.id)

    asyncio.run(follow())


@pytest.mark.parametrize("follow", [_blocking, _asynchronous])
def test_stream_goes_on_behind_its_last_event(follow: Follow) -> None:
    ids: Ids = []
    with (
        _serving(
            Part(SOON + _event(1) + _event(2)),
            Part(_event(3) + _event(4)[:-1], is_broken_off=True),
            Part(status=503),
            Part(status=429),
            Part(b": nothing new\n\n" + _event(4)),
            Part(b'{"type":"urn:mqstore:problem:unauthorized"}', status=401),
        ) as script,
        pytest.raises(ProblemError) as caught,
    ):
        follow(script.url, ids)
    assert ids == ["1", "2", "3", "4"]
    assert script.last_ids == [None, "2", "3", "3", "3", "4"]
    assert (caught.value.status, caught.value.type) == (401, "unauthorized")


@pytest.mark.parametrize("follow", [_blocking, _asynchronous])
def test_what_was_never_reached_is_not_waited_for(follow: Follow) -> None:
    with _serving(Part(b'{"type":"urn:mqstore:problem:overloaded"}', status=503)) as script:
        with pytest.raises(ProblemError):
            follow(script.url, [])
        gone = script.url
    with pytest.raises(Unreachable):
        follow(gone, [])


def test_service_that_stays_away_is_given_up() -> None:
    with _serving(Part(SOON + _event(1))) as script, Client(script.url, script.url) as client:
        events = client.events(patience_s=0)
        assert next(events).id == "1"
        script.parts = [Part(status=503)] * 5
        with pytest.raises(ProblemError) as caught:
            next(events)
    assert caught.value.status == 503


def test_service_that_ends_the_stream_over_and_over_is_given_up() -> None:
    with _serving(Part(SOON + _event(1))) as script, Client(script.url, script.url) as client:
        events = client.events(patience_s=0)
        assert next(events).id == "1"
        script.parts = [Part()] * 5
        with pytest.raises(Unreachable):
            next(events)


def test_stream_of_so_many_seconds_ends_with_the_services_end() -> None:
    with (
        _serving(Part(SOON + _event(1)), Part(_event(1), is_broken_off=True)) as script,
        Client(script.url, script.url) as client,
    ):
        assert [each.id for each in client.events(seconds=0)] == ["1"]
        with pytest.raises(Unreachable):
            list(client.events(seconds=0))


@pytest.mark.parametrize(
    "part",
    [
        Part(SOON + b"id: 1\ndata: no JSON\n\n"),
        Part(SOON + b'id: 1\ndata: {"kind":"topic"}\n\n'),
        Part(SOON + b"id: 1\ndata: 7\n\n"),
    ],
)
def test_event_that_cannot_be_read_is_an_error_and_is_not_requested_again(part: Part) -> None:
    with (
        _serving(part) as script,
        Client(script.url, script.url) as client,
        pytest.raises(EventUnknown, match="cannot decode"),
    ):
        next(client.events())


def test_answer_that_is_no_stream_is_an_error() -> None:
    part = Part(b"<html>", content_type="text/html")
    with (
        _serving(part) as script,
        Client(script.url, script.url) as client,
        pytest.raises(Unreachable),
    ):
        next(client.events())


def test_leaving_a_loop_ends_the_connection() -> None:
    async def leave(url: str) -> None:
        async with (
            AsyncClient(url, url) as client,
            contextlib.aclosing(client.events()) as events,
        ):
            await anext(events)

    with _serving(Part(_event(1)), Part(_event(1)), stays_open=True) as script:
        script.parts.pop()
        with Client(script.url, script.url) as client:
            with contextlib.closing(client.events()) as events:
                next(events)
            assert script.left.wait(30)
            script.left.clear()
            script.parts = [Part(_event(1))]
            asyncio.run(leave(script.url))
            assert script.left.wait(30)


def test_pauses_double_up_to_a_bound_and_begin_anew_with_what_comes() -> None:
    now = [0.0]
    place = Place(store_events(patience_s=100), clock=lambda: now[0])
    place.take(ServerSentEvent(retry=500, data=""))
    gone = Unreachable("gone")

    def pause() -> float:
        found = place.pause_s(gone)
        assert found is not None
        return found

    for expected in (0.5, 1, PAUSE_MAX_S, PAUSE_MAX_S):
        assert expected <= pause() <= expected * 1.25
    now[0] = 90
    place.take(ServerSentEvent(data='{"kind":"topic","atMs":1}', id="7"))
    assert place.headers()["last-event-id"] == "7"
    assert 0.5 <= pause() <= 0.625
    now[0] = 191
    with pytest.raises(Unreachable):
        pause()
