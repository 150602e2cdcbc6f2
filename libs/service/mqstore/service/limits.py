"""Limits of connections, requests and bytes that a service holds at one time, in all and by client.

A client above its own share gets 429. While the whole is used up, every client gets 503. Both have
Retry-After; no request is queued. Everything here is used on the event loop only.
"""

from __future__ import annotations

import asyncio
import resource
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from starlette.types import Receive

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings

CONTROL_BODY_SIZE_MAX: Final = 64 << 10
"""Bytes of a request body outside the hot routes."""
LARGE_ANSWER_SIZE: Final = 64 << 10
"""Replies larger than this many bytes count towards the limit of bytes."""
SPARE_CONNECTIONS: Final = 64
"""Connections accepted above the limit, for health and metrics only. A new one replaces the
oldest."""
UNLIMITED_PATHS: Final = ("/healthz/", "/metrics")
"""Paths that are served regardless of the limits."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
"""Methods that do not change state (RFC 9110, section 9.2.1)."""
ANSWER_SIZE: Final = "mqstore.answer_size"
_ADMITTED: Final = "mqstore.admitted"
_HELD: Final = "mqstore.held"
_STREAMS: Final = "mqstore.streams"
"""Keys of a request's scope: its parts of the budgets."""
OPEN_FILES_PART: Final = 0.75
"""Part of the open files that the system allows that may be connections."""


Scope = MutableMapping[str, Any]


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete or had a reply."""


class Budget:
    """A limited amount of which each client, by its address, may take a share at most."""

    __slots__ = ("_by_client", "_per_client", "maximum", "refused", "taken", "what")

    def __init__(self, what: str, maximum: int, client_share: int, at_least: int = 1) -> None:
        """``client_share`` is the share of one client in percent, ``at_least`` its minimum.

        ``what`` names the amount in problems.
        """
        self.what = what
        self.maximum = maximum
        self.taken = 0
        self.refused = {kind.name: 0 for kind in (problems.OVERLOADED, problems.CLIENT_OVER_SHARE)}
        self._per_client = max(at_least, maximum * client_share // 100)
        self._by_client: defaultdict[str, int] = defaultdict(int)

    def take(self, client: str, amount: int = 1) -> None:
        """Take an amount. Raises Problem: 503 when all is taken, 429 above the client's share."""
        if self.is_short(client, amount):
            # Not in a variable: error and traceback would be a cycle that keeps replies alive.
            raise self._refused(client, amount)
        self.add(client, amount)

    def add(self, client: str, amount: int) -> None:
        """Take an amount without a check, for what is held already."""
        self.taken += amount
        self._by_client[client] += amount

    @contextmanager
    def holding(self, client: str) -> Iterator[None]:
        """Take 1 for the time of the context. Raises as ``take``."""
        self.take(client)
        try:
            yield
        finally:
            self.give_back(client)

    def give_back(self, client: str, amount: int = 1) -> None:
        """Return an amount that was taken."""
        self.taken -= amount
        left = self._by_client[client] - amount
        if left:
            self._by_client[client] = left
        else:
            del self._by_client[client]

    def refusal(self, client: str, amount: int = 1) -> Problem | None:
        """Return the problem for a client that may not take an amount, counted; else None."""
        return self._refused(client, amount) if self.is_short(client, amount) else None

    def require_room(self, client: str) -> None:
        """Raise Problem as ``take`` if ``add`` exceeded the limit or the client's share."""
        if self.is_short(client, 0):
            raise self._refused(client, 0)

    def is_short(self, client: str, amount: int) -> bool:
        """Return whether the client may not take an amount."""
        mine = self._by_client.get(client, 0)
        return self.taken + amount > self.maximum or mine + amount > self._per_client

    def _refused(self, client: str, amount: int) -> Problem:
        if self.taken + amount > self.maximum:
            kind = problems.OVERLOADED
            detail = f"all of {self.maximum} {self.what} are taken; try again later"
        else:
            kind = problems.CLIENT_OVER_SHARE
            detail = (
                f"your address has its share of {self._per_client} {self.what}; "
                "wait for replies before you send more"
            )
        self.refused[kind.name] += 1
        return Problem(kind, detail)


class Connection(Protocol):
    """A connection as ``Connections`` uses it."""

    def drop(self) -> None:
        """Close it at once."""


class Connections:
    """The open connections: those within the limit, and spare ones for health and metrics."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spare: dict[Connection, None] = {}

    def enter(self, connection: Connection, client: str) -> Problem | None:
        """Add a connection. Above the limit returns the problem for its requests, except those
        for health and metrics."""
        refusal = self._budget.refusal(client)
        if refusal is None:
            self._budget.add(client, 1)
            return None
        if len(self._spare) >= SPARE_CONNECTIONS:
            oldest = next(iter(self._spare))
            del self._spare[oldest]
            oldest.drop()
        self._spare[connection] = None
        return refusal

    def leave(self, connection: Connection, client: str, refusal: Problem | None) -> None:
        """Remove a connection. ``refusal`` is the result of ``enter``."""
        if refusal is None:
            self._budget.give_back(client)
        else:
            self._spare.pop(connection, None)


@dataclass(slots=True)
class Limits:
    """All limits of one service."""

    max_request: int
    timeout_s: float
    connections: Budget
    requests: Budget
    memory: Budget
    """Bytes of request bodies until their reply, and of replies until clients have read them."""
    polls: Budget
    """Requests that wait for messages, and streams of events."""
    is_shutting_down: bool = False
    _receiving: set[asyncio.Timeout] = field(default_factory=set)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Build the limits from the settings and the system's limit of open files."""
        share = settings.max_client_share
        connections = min(settings.max_connections, _connections_that_fit())
        return cls(
            settings.max_request_size,
            settings.receive_timeout_s,
            Budget("connections", connections, share),
            Budget("requests at one time", settings.max_requests, share),
            Budget("bytes held", settings.max_pending_bytes, share, settings.max_request_size),
            Budget("open polls and streams", settings.max_open_polls, share),
        )

    def admit(self, scope: Scope) -> None:
        """Count a request that begins. Raises Problem (429, 503)."""
        scope[_STREAMS] = []  # copies of the scope share it
        if not scope["path"].startswith(UNLIMITED_PATHS):
            client = client_of(scope)
            self.memory.require_room(client)
            self.requests.take(client)
            scope[_ADMITTED] = 1

    def has_room(self, client: str) -> bool:
        """Return whether one more request of a client would be admitted, without counting it."""
        memory, requests = self.memory, self.requests
        return not (memory.taken or requests.taken) or not (
            memory.is_short(client, 0) or requests.is_short(client, 1)
        )

    def hold(self, scope: Scope, size: int) -> None:
        """Count ``size`` more bytes of the request's body. Raises Problem (429, 503)."""
        self.memory.take(client_of(scope), size)
        scope[_HELD] = scope.get(_HELD, 0) + size

    def hold_stream(self, scope: Scope) -> None:
        """Count a request whose reply is a stream, until it ends. Raises Problem (429, 503)."""
        client = client_of(scope)
        self.polls.take(client)
        scope[_STREAMS].append(client)

    def keep(self, scope: Scope, size: int) -> None:
        """Count ``size`` more bytes of the request without a check."""
        self.memory.add(client_of(scope), size)
        scope[_HELD] = scope.get(_HELD, 0) + size

    def hold_answer(self, scope: Scope, size: int) -> None:
        """Count a reply of ``size`` bytes before it is sent.

        Raises Problem (429, 503) for safe methods only: after a change, the problem would state
        that nothing was changed.
        """
        if size > LARGE_ANSWER_SIZE:
            take = self.hold if scope["method"] in SAFE_METHODS else self.keep
            take(scope, size)
            scope[ANSWER_SIZE] = size

    def release(self, scope: Scope) -> None:
        """Return all that a request took. Further calls have no effect."""
        client = client_of(scope)
        if scope.pop(_ADMITTED, 0):
            self.requests.give_back(client)
        held = scope.pop(_HELD, 0)
        if held:
            self.memory.give_back(client, held)
        for each in scope.pop(_STREAMS, ()):
            self.polls.give_back(each)

    async def read(self, scope: Scope, receive: Receive, maximum: int | None = None) -> bytes:
        """Receive the whole body. Raises Problem (408, 413, 503), ClientDisconnected."""
        limit = self.max_request if maximum is None else min(maximum, self.max_request)
        if content_length(scope["headers"]) > limit:
            raise too_large(limit)
        message = await receive()
        if message.get("more_body", False):
            return await self._read_chunks(message.get("body", b""), receive, limit)
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        return body

    async def pieces(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """Yield the parts of a body of any length; a part counts until the next is requested.

        Raises Problem (408) if the next part is not received in time, or ClientDisconnected.
        """
        more = True
        while more:
            async with self._in_time():
                message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            yield piece
            self.release_part(scope, len(piece))
            more = message.get("more_body", False)

    def release_part(self, scope: Scope, size: int) -> None:
        """Return ``size`` bytes of what a request took."""
        held = min(size, scope.get(_HELD, 0))
        if held:
            scope[_HELD] -= held
            self.memory.give_back(client_of(scope), held)

    def interrupt(self) -> None:
        """Stop waiting for parts of bodies, because the service is shutting down."""
        self.is_shutting_down = True
        now = asyncio.get_running_loop().time()
        for deadline in self._receiving:
            if not deadline.expired():
                deadline.reschedule(now)

    async def _read_chunks(self, first: bytes, receive: Receive, limit: int) -> bytes:
        body = bytearray(first)
        async with self._in_time():
            more = True
            while more:
                if len(body) > limit:
                    raise too_large(limit)
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                body += message.get("body", b"")
                more = message.get("more_body", False)
        if len(body) > limit:
            raise too_large(limit)
        return bytes(body)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Raise Problem (408, 503) if the body of the context does not end in time."""
        deadline = asyncio.timeout(0 if self.is_shutting_down else self.timeout_s)
        self._receiving.add(deadline)
        try:
            async with deadline:
                yield
        except TimeoutError:
            raise self._timeout_problem() from None
        finally:
            self._receiving.discard(deadline)

    def _timeout_problem(self) -> Problem:
        if self.is_shutting_down:
            return shutdown_problem()
        return Problem(
            problems.REQUEST_TIMEOUT,
            f"the body was not complete after {self.timeout_s:g} s; send it at once",
            headers={"connection": "close"},
        )


def shutdown_problem() -> Problem:
    """Return the problem (503) for requests during the shutdown."""
    return Problem(problems.SHUTTING_DOWN, "the service is shutting down; retry in a moment")


def too_large(limit: int) -> Problem:
    """Return the problem (413) for a body of more than ``limit`` bytes."""
    return Problem(
        problems.BODY_TOO_LARGE,
        f"the request's body is larger than {limit} bytes; send fewer or smaller messages",
        extra={"limit": limit},
    )


def client_of(scope: Scope) -> str:
    """Return the client that a request counts for: the peer address of its connection."""
    client = scope.get("client")
    address: str = client[0] if client else ""
    return address


def _connections_that_fit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    return max(1, int(limit * OPEN_FILES_PART))


def has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the head of a request announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the declared content length in bytes; 0 without a valid one."""
    for key, value in headers:
        if key == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
