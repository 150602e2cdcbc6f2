"""The direct way of a request: its coroutine begins at once, where its last byte was received.

Mostly it ends there, too, and head and body of the answer are one write. When it has to wait, a
task goes on with it. (Python 3.12 has this as eager tasks.)
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, Final, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, HTTPResponseStartEvent, HTTPScope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from mqstore.service.http import ANSWER

JOINED_SIZE_MAX: Final = 64 << 10
"""Bytes of a body that is copied behind its head; a larger one is handed over by itself."""


class DirectCycle(RequestResponseCycle):
    """uvicorn's request and answer, for a body that is there and an answer in one piece.

    Only for hot routes: their answers say their content-length.
    """

    disconnected = False
    keep_alive = True
    response_started = False
    response_complete = False
    more_body = False

    def __init__(  # without the base class's: it makes what only bodies in parts need
        self,
        scope: dict[str, Any],
        body: bytes,
        transport: asyncio.Transport,
        flow: FlowControl,
        default_headers: list[tuple[bytes, bytes]],
        message_event: asyncio.Event,
        write: Callable[[bytes], None],
        on_response: Callable[[], None],
    ) -> None:
        scope[ANSWER] = self.answer
        self.scope = cast(HTTPScope, scope)
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self.message_event = message_event
        self.on_response = on_response
        self._answer_with = write
        self._whole: bytes | None = body
        self._start: HTTPResponseStartEvent | None = None
        message_event.clear()

    async def receive(self) -> ASGIReceiveEvent:
        body, self._whole = self._whole, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        if not (self.disconnected or self.response_complete):
            await self.message_event.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if message["type"] == "http.response.start":
            self.response_started = True
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._write(self._start["status"], self._start["headers"], message["body"])

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """As ``mqstore.service.http.Answer``."""
        if self.flow.write_paused:
            return False
        self.response_started = True
        self._write(status, headers, body)
        return True

    def answer_whole(self, answer: bytes) -> None:
        """With its head, which says nothing of the connection."""
        if self.disconnected:
            return
        self.response_started = True
        if self.keep_alive:
            self._answer_with(answer)
        else:
            head, end, body = answer.partition(b"\r\n\r\n")
            self.transport.writelines((head, b"\r\nconnection: close", end, body))
        self._end()

    def _write(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        if self.disconnected:
            return
        head = self._head(status, headers)
        if len(body) <= JOINED_SIZE_MAX and self.keep_alive:
            self._answer_with(head + body)
        else:
            self.transport.writelines((head, body))
        self._end()

    def _end(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        all_headers = (*self.default_headers, *headers)
        lines = [b"%b: %b\r\n" % each for each in all_headers]
        if (b"connection", b"close") in all_headers:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join((STATUS_LINE[status], *lines, b"\r\n"))
        if head.count(b"\n") != len(lines) + 2:
            raise RuntimeError("a header's value has more than one line")
        return head


def begin(coroutine: Coroutine[Any, None, None], context: contextvars.Context) -> Any:
    """Run a coroutine up to its first wait. Returns None when it ended, else what it waits for, for
    ``go_on``. Up to there it is in no task: ``asyncio.timeout`` and the like need one."""
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration:
        return None
    return _AnyTurn if waits_for is None else waits_for


async def go_on(coroutine: Coroutine[Any, None, None], waits_for: Any) -> None:
    """The rest of what ``begin`` began, for a task."""
    await _Rest(coroutine, waits_for)


class _AnyTurn:
    """What a coroutine waits for that only lets others run (``asyncio.sleep(0)``)."""


class _Rest:
    """Hands what a task sends or throws to a coroutine that waits already."""

    def __init__(self, coroutine: Coroutine[Any, None, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = None if waits_for is _AnyTurn else waits_for

    def __await__(self) -> Generator[Any, None, None]:
        waits_for = self._waits_for
        while True:
            step: Callable[[], Any] = partial(self._coroutine.send, None)
            try:
                yield waits_for
            except BaseException as error:
                step = partial(self._coroutine.throw, error)
            try:
                waits_for = step()
            except StopIteration:
                return
