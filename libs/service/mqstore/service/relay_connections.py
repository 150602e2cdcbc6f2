"""Persistent HTTP/1.1 connections to another service, for requests that this process passes on.

A request has a connection of its own while there are fewer than ``connections_max``;
otherwise it is pipelined behind others. A client's requests keep to one connection where they can:
the service at its other end keeps what it knows of their heads. What several requests write in one
iteration of the event loop is sent by one system call (uvloop).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

CONNECTIONS_KEPT: Final = 64
"""To one service: further ones are closed when they are idle."""
CONNECT_TIMEOUT_S: Final = 2.0
IDLE_MAX_S: Final = 30.0
"""Seconds after which an idle connection is not used again; our services close one after 75."""
REPLY_SIZE_MAX: Final = 128 << 20
"""Maximum bytes of a reply's body."""


class RelayError(Exception):
    """A request has no reply."""


class NotSent(RelayError):
    """No byte of the request was sent."""


class NoReply(RelayError):
    """The request was sent, wholly or in part, and may have been carried out."""


class RelayedReply(NamedTuple):
    """A whole reply of another service."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header field."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def is_success(self) -> bool:
        """Whether the status is one of 200 to 299."""
        return 200 <= self.status < 300


class _Waiting(NamedTuple):
    """A request without a reply yet."""

    future: asyncio.Future[RelayedReply]
    deadline: float
    hold: Callable[[int], None]


class RelayConnections:
    """The connections to one service. Used on the event loop only."""

    def __init__(
        self, url: str, tls: Callable[[], ssl.SSLContext], connections_max: int = CONNECTIONS_KEPT
    ) -> None:
        """``url`` has the scheme http or https; ``tls`` is called for the second one. Above
        ``connections_max`` requests wait for the replies before theirs. Raises ValueError for
        another scheme, or without a host."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"{url!r} is no address of a service; it begins with http or https")
        self.prefix: Final = parts.path.rstrip("/")
        """Beginning of the paths of all requests."""
        self.host: Final = parts.netloc.rpartition("@")[2]
        """Value of the header ``host``."""
        self._address = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = tls if parts.scheme == "https" else None
        self._connections_max = connections_max
        self._idle: list[_Connection] = []
        """Those that became idle first are first."""
        self._all: set[_Connection] = set()

    async def send(
        self,
        request: bytes,
        timeout_s: float,
        client: Hashable = None,
        hold: Callable[[int], None] = lambda _: None,
    ) -> RelayedReply:
        """Send the bytes of a request that is no HEAD, and return its reply, whatever its status.

        ``hold`` is called with the size of each received part of the reply's body, and raises
        RelayError to end the request. Raises NotSent, NoReply, and what ``hold`` raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[RelayedReply] = loop.create_future()
        connection = self._choose(loop, client)
        connection.send(request, _Waiting(future, loop.time() + timeout_s, hold))
        try:
            return await future
        except asyncio.CancelledError:
            connection.abandon()
            raise

    async def close(self) -> None:
        """Close all connections; requests without a reply raise NoReply."""
        for each in [*self._all]:
            each.end(NoReply("this service is shutting down"))

    def _choose(self, loop: asyncio.AbstractEventLoop, client: Hashable) -> _Connection:
        oldest = loop.time() - IDLE_MAX_S
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle[0].end(NoReply("idle"))
        for at, each in enumerate(self._idle):
            if each.client == client:
                return self._idle.pop(at)
        if self._idle and len(self._all) >= min(CONNECTIONS_KEPT, self._connections_max):
            found = self._idle.pop(0)
            found.client = client
            return found
        if len(self._all) >= self._connections_max:
            return min(self._all, key=lambda each: len(each.waiting))
        new = _Connection(loop, self, client)
        self._all.add(new)
        new.opening = loop.create_task(self._open(new))
        return new

    async def _open(self, new: _Connection) -> None:
        host, port = self._address
        context = None if self._tls is None else self._tls()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await new.loop.create_connection(
                    lambda: new,
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
        except TimeoutError:
            new.end(NotSent(f"no connection within {CONNECT_TIMEOUT_S:g} s"))
        except OSError as error:
            new.end(NotSent(str(error) or type(error).__name__))

    def release(self, connection: _Connection) -> None:
        """Use a connection again, which has no request now."""
        self._idle.append(connection)
        if len(self._all) > CONNECTIONS_KEPT:
            self._idle[0].end(NoReply("idle"))

    def forget(self, connection: _Connection) -> None:
        """Remove a connection that has ended."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One of them. Replies come in the order of the requests."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owner: RelayConnections, client: Hashable
    ) -> None:
        self.loop = loop
        self.client = client
        """The client whose request it had last."""
        self.waiting: deque[_Waiting] = deque()
        self.idle_since = 0.0
        self.opening: asyncio.Task[None] | None = None
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_ended = False

    def send(self, request: bytes, waiting: _Waiting) -> None:
        """Send a request, once the connection is open."""
        self.waiting.append(waiting)
        if self._timer is None or waiting.deadline < self._timer_at:
            self._check_at(waiting.deadline)
        if self._transport is None:
            self._unsent.append(request)
        else:
            self._transport.write(request)

    def abandon(self) -> None:
        """Close the connection if no request on it is waited for any more."""
        if all(each.future.done() for each in self.waiting):
            self.end(NoReply("not wanted any more"))

    def end(self, error: RelayError) -> None:
        """Close the connection; its requests raise ``error``."""
        if self._is_ended:
            return
        self._is_ended = True
        self._owner.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None and self.opening is not asyncio.current_task(self.loop):
            self.opening.cancel()
        for each in self.waiting:
            if not each.future.done():
                each.future.set_exception(error)
        self.waiting.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what waits."""
        opened = cast(asyncio.Transport, transport)  # uvloop's own class
        if self._is_ended:
            opened.abort()
            return
        self._transport = opened
        opened.writelines(self._unsent)
        self._unsent.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Requests without a reply may have been carried out."""
        self.end(NoReply(str(exc) if exc else "the connection was closed without a reply"))

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.end(NoReply(f"the reply is no HTTP/1.1: {error}"))

    # called by the parser

    def on_message_begin(self) -> None:
        """A reply begins."""
        self._headers, self._parts, self._size = [], [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a field of a trailer."""
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._size += len(body)
        try:
            if self._size > REPLY_SIZE_MAX:
                raise NoReply(f"the reply has more than {REPLY_SIZE_MAX} bytes")
            if self.waiting:
                self.waiting[0].hold(len(body))
        except RelayError as error:
            self.end(error)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Give the reply to the first request that waits."""
        if self._is_ended:
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim reply
            return
        if not self.waiting:
            self.end(NoReply("a reply without a request"))
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        future = self.waiting.popleft().future
        if not future.done():
            future.set_result(RelayedReply(status, self._headers, body))
        if not self._parser.should_keep_alive():
            self.end(NoReply("the service closed the connection before this reply"))
        elif not self.waiting:
            self.idle_since = self.loop.time()
            self._owner.release(self)

    def _check_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(deadline, self._check), deadline

    def _check(self) -> None:
        """End the connection if a request waits for too long, else look again later."""
        self._timer = None
        deadline = min((each.deadline for each in self.waiting), default=None)
        if deadline is None:
            return
        if deadline <= self.loop.time():
            error = NotSent if self._transport is None else NoReply
            self.end(error("no reply in time"))
        else:
            self._check_at(deadline)
