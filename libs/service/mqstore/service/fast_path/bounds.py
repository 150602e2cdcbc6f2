"""uvicorn's HTTP protocol with limits on time and memory of one connection.

It extends ``uvicorn.protocols.http.httptools_impl``, which is not part of uvicorn's public
interface: the minor version of uvicorn is pinned, and a test fails with another version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mqstore.service import problems
from mqstore.service.fast_path import plain
from mqstore.service.http import Front
from mqstore.service.limits import ANSWER_SIZE, UNLIMITED_PATHS, Connections, Limits, Scope
from mqstore.service.problems import Problem

_LINGER_S: Final = 2.0
"""Seconds until a connection with a rejected request is closed: a client that still sends would
lose the reply if it were closed at once."""
_FIELD_EXTRA: Final = 4
"""Bytes of a header field besides its name and value: colon, space, line end."""
_UNLIMITED: Final = tuple(path.encode() for path in UNLIMITED_PATHS)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Closed when a head, body or trailer is too long or too slow, and when the
    client does not read its reply. Used on the event loop only.

    httptools itself accepts lines of any length; uvicorn sets no time limit for a head, and keeps
    replies that a client does not read.
    """

    max_header_size: ClassVar[int]
    max_message_size: ClassVar[int]
    """Bytes on the wire from the request line to the end of the body."""
    head_timeout_s: ClassVar[float]
    send_timeout_s: ClassVar[float]
    front: ClassVar[Front]
    limits: ClassVar[Limits]
    open: ClassVar[Connections]
    needs_certificate: ClassVar[bool]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_connected: Callable[[], None] = lambda: None
        """Called before this connection is counted as an open one."""
        self._address = ""
        self._overflow: Problem | None = None
        """Problem of a connection above the limit of connections."""
        self._refusal: Problem | None = None
        """Problem for all requests of this connection, except for health and metrics."""
        self._refused = False
        self._in_head = True
        self._in_message = False
        """Whether the parser has a part of a request, but not its end."""
        self._written = 0
        """Bytes of the latest reply of the fast path; 0 if uvicorn sent the latest reply."""
        self._received = 0
        self._unsent = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and begin to time its first head."""
        # the parameter's type is as in uvicorn; asyncio's base class has BaseTransport
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.on_connected()
        self._overflow = self._refusal = self.open.enter(self, self._address)
        if self.needs_certificate and not transport.get_extra_info("peercert"):
            self._refusal = self._refusal or Problem(
                problems.UNAUTHENTICATED, "this service needs a client certificate; present one"
            )
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and return all that the connection took of the limits."""
        self._unwatch_head()
        self._unwatch_body()
        self._sent()
        self.open.leave(self, self._address, self._overflow)
        for cycle, _ in self.pipeline:  # requests that will not be handled
            self.limits.release(cast(Scope, cycle.scope))
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, within the limits of head and message."""
        if self._refused:
            return
        self._received += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._in_head:
            self._watch_head()
            if self._received > self.max_header_size:
                detail = f"more than {self.max_header_size} bytes"
                self._refuse(Problem(problems.HEADERS_TOO_LARGE, detail))
        elif self._received > self.max_message_size and not self._streams():
            self.transport.close()
        elif self._in_message and self._body_timer is None:
            self._body_timer = self.loop.call_later(self.head_timeout_s, self._end_slow_body)

    def _streams(self) -> bool:
        """Return whether the request in progress may have a body of any length."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        hot = self.front.hot_route(cycle.scope["method"], cycle.scope["path"])
        return hot is not None and hot[0].streams

    def pause_writing(self) -> None:
        """Count the unsent reply as held bytes, and limit the time until it is sent."""
        super().pause_writing()
        self._sent()
        size = self._written
        if not size and self.cycle is not None:
            size = cast(Scope, self.cycle.scope).get(ANSWER_SIZE, 0)
        # The transport keeps the whole reply until its last byte is sent.
        self._unsent = max(size, self.transport.get_write_buffer_size())
        self.limits.memory.add(self._address, self._unsent)
        self._send_timer = self.loop.call_later(self.send_timeout_s, self.drop)

    def resume_writing(self) -> None:
        """Return the bytes that ``pause_writing`` counted."""
        self._sent()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Reset the counts for a new request."""
        if self._refused:
            return
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._received = self._written = 0

    def on_headers_complete(self) -> None:
        """Check the head; reject the request, or let uvicorn begin it."""
        if self._refused:
            return
        self._unwatch_head()
        wrong = self._wrong_head()
        if wrong is not None:
            self._refuse(wrong)
            return
        if self._refusal is not None and not self.url.startswith(_UNLIMITED):
            self._refuse(self._refusal)
            return
        self._in_head = False
        super().on_headers_complete()
        if self._refusal is not None:
            self.cycle.keep_alive = False

    def _wrong_head(self) -> Problem | None:
        """Return the problem of a head that is too long or violates HTTP; None for a valid one."""
        fields = sum([len(name) + len(value) + _FIELD_EXTRA for name, value in self.headers])
        if len(self.url) + fields > self.max_header_size:
            return Problem(problems.HEADERS_TOO_LARGE, f"more than {self.max_header_size} bytes")
        names = [name for name, _ in self.headers]
        for name in plain.GIVEN_ONCE:
            if names.count(name) > 1:
                detail = f"header {name.decode()} is given {names.count(name)} times; send it once"
                return Problem(problems.BAD_PARAMETER, detail)
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            coding = b", ".join(codings).decode("latin-1")[:100]
            detail = f"transfer-encoding {coding!r} is unknown; send chunked, or a content-length"
            return Problem(problems.BAD_PARAMETER, detail)
        return None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field; fields of a trailer are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Add a part of a body if the limit of bytes allows it, else reject the request."""
        if self._refused or self.cycle.response_complete:
            return
        try:
            self.limits.hold(cast(Scope, self.cycle.scope), len(body))
        except Problem as problem:
            self._refuse(problem)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer of the body."""
        self._in_message = False
        self._unwatch_body()
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Drop a body that the handler did not read, and continue with the next request."""
        if self.cycle is not None and not self.pipeline:
            self.cycle.body = bytearray()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are no HTTP/1.1 with a problem instead of uvicorn's text."""
        self._refuse(Problem(problems.BAD_PARAMETER, "the request is no valid HTTP/1.1"))

    def _is_idle(self) -> bool:
        """Return whether uvicorn has no request in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _unwatch_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _end_slow_body(self) -> None:
        """Close the connection of a slow body after its reply: no handler reads the rest.

        Before the reply, check again later: the handler may still read the body.
        """
        if self._is_idle():
            self.transport.close()
        else:
            self._body_timer = self.loop.call_later(self.head_timeout_s, self._end_slow_body)

    def _sent(self) -> None:
        """Return what ``pause_writing`` counted: all was sent, or the client disconnected."""
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
            self.limits.memory.give_back(self._address, self._unsent)
            self._unsent = 0

    def _has_earlier_request(self) -> bool:
        """Return whether the client would take a problem for the reply to an earlier request."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return self._in_head or not cycle.more_body or cycle.response_started or bool(self.pipeline)

    def _refuse(self, problem: Problem) -> None:
        if self._refused:  # the parser goes on with the bytes behind
            return
        self._refused = True
        if self._has_earlier_request():
            self.transport.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        kind, body = problem.kind, problem.body("")
        headers = "".join(f"{name}: {value}\r\n" for name, value in problem.headers.items())
        head = (
            f"HTTP/1.1 {kind.status} {kind.title}\r\n{headers}"
            f"content-type: {problems.CONTENT_TYPE}\r\n"
            f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._unwatch_head()
            self._head_timer = self.loop.call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()
