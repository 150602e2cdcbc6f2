"""Bounds on what a service holds at one time: connections, requests, bytes; each client a part.

Above its own share a client is answered 429, above the whole everybody is answered 503, both with
Retry-After; nothing is queued. Everything here is used on the event loop only.
"""

from __future__ import annotations

import asyncio
import resource
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from starlette.types import Receive

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings

CONTROL_BODY_SIZE_MAX: Final = 64 << 10
"""Bytes of a request body outside the hot routes."""
LARGE_ANSWER_SIZE: Final = 64 << 10
"""Bytes of an answer above which it counts before it is sent."""
SPARE_CONNECTIONS: Final = 64
"""Taken in above the limit, for health and metrics alone; the newest push out the oldest."""
UNLIMITED_PATHS: Final = ("/healthz/", "/metrics")
"""Answered however much else is going on."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
ANSWER_SIZE: Final = "mqstore.answer_size"
_ADMITTED: Final = "mqstore.admitted"
_HELD: Final = "mqstore.held"
"""Keys of a request's scope: what it has of the budgets."""
OPEN_FILES_PART: Final = 0.75
"""Of the open files that the system allows, how many may be connections."""


Scope = MutableMapping[str, Any]


class ClientDisconnected(Exception):
    """The connection ended before the request did: there is nobody to answer."""


class Budget:
    """An amount that is shared out, of which one client (an address) gets a part at most."""

    __slots__ = ("_by_client", "_per_client", "maximum", "refused", "taken", "what")

    def __init__(self, what: str, maximum: int, client_share: int, at_least: int = 1) -> None:
        """``client_share`` is in percent; what one client may have is ``at_least`` so much."""
        self.what = what
        self.maximum = maximum
        self.taken = 0
        self.refused = {kind.name: 0 for kind in (problems.OVERLOADED, problems.CLIENT_OVER_SHARE)}
        self._per_client = max(at_least, maximum * client_share // 100)
        self._by_client: defaultdict[str, int] = defaultdict(int)

    def take(self, client: str, amount: int = 1) -> None:
        """Raises Problem: 503 when there is no more, 429 when the client has its share."""
        if self.is_short(client, amount):
            # In no variable: traceback and error would be a cycle that keeps whole answers alive.
            raise self._refused(client, amount)
        self.add(client, amount)

    def add(self, client: str, amount: int) -> None:
        """Take what is there already, whatever the bounds say."""
        self.taken += amount
        self._by_client[client] += amount

    def give_back(self, client: str, amount: int = 1) -> None:
        self.taken -= amount
        left = self._by_client[client] - amount
        if left:
            self._by_client[client] = left
        else:
            del self._by_client[client]

    def refusal(self, client: str, amount: int = 1) -> Problem | None:
        """What is answered to a client that wants so much more, counted; None: it may have it."""
        return self._refused(client, amount) if self.is_short(client, amount) else None

    def require_room(self, client: str) -> None:
        """Raises Problem as ``take``, where more than there is was added."""
        if self.is_short(client, 0):
            raise self._refused(client, 0)

    def is_short(self, client: str, amount: int) -> bool:
        """Whether the client may not have so much more."""
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
                "wait for answers before you send more"
            )
        self.refused[kind.name] += 1
        return Problem(kind, detail)


class Connection(Protocol):
    """What ``Connections`` needs of one."""

    def drop(self) -> None:
        """End it at once."""


class Connections:
    """Which connections may be used for everything, and which for health alone."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spare: dict[Connection, None] = {}

    def enter(self, connection: Connection, client: str) -> Problem | None:
        """None, or what all but health and metrics is answered on this connection."""
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
        """``refusal`` is what ``enter`` answered."""
        if refusal is None:
            self._budget.give_back(client)
        else:
            self._spare.pop(connection, None)


@dataclass(slots=True)
class Limits:
    """All bounds of one service."""

    max_request: int
    timeout_s: float
    connections: Budget
    requests: Budget
    memory: Budget
    """Bytes of request bodies until they are answered, and of answers until clients take them."""
    is_ending: bool = False
    _receiving: set[asyncio.Timeout] = field(default_factory=set)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        share = settings.max_client_share
        connections = min(settings.max_connections, _connections_that_fit())
        return cls(
            settings.max_request_size,
            settings.receive_timeout_s,
            Budget("connections", connections, share),
            Budget("requests at one time", settings.max_requests, share),
            Budget("bytes held", settings.max_pending_bytes, share, settings.max_request_size),
        )

    def admit(self, scope: Scope) -> None:
        """Begin with one request. Raises Problem (429, 503)."""
        if not scope["path"].startswith(UNLIMITED_PATHS):
            client = client_of(scope)
            self.memory.require_room(client)
            self.requests.take(client)
            scope[_ADMITTED] = 1

    def has_room(self, client: str) -> bool:
        """Whether one more request of a client would be admitted; nothing is counted."""
        memory, requests = self.memory, self.requests
        return not (memory.taken or requests.taken) or not (
            memory.is_short(client, 0) or requests.is_short(client, 1)
        )

    def hold(self, scope: Scope, size: int) -> None:
        """So much more of the request's body has come. Raises Problem (429, 503)."""
        self.memory.take(client_of(scope), size)
        scope[_HELD] = scope.get(_HELD, 0) + size

    def keep(self, scope: Scope, size: int) -> None:
        """So much of the request is there, and stays until it is answered, whatever the bounds
        say."""
        self.memory.add(client_of(scope), size)
        scope[_HELD] = scope.get(_HELD, 0) + size

    def hold_answer(self, scope: Scope, size: int) -> None:
        """An answer of so many bytes is about to be sent. Raises Problem (429, 503), but not for
        what may have changed something: a refusal would say that nothing was done."""
        if size > LARGE_ANSWER_SIZE:
            take = self.hold if scope["method"] in SAFE_METHODS else self.keep
            take(scope, size)
            scope[ANSWER_SIZE] = size

    def release(self, scope: Scope) -> None:
        """The request is answered, or will never be; called once or more."""
        client = client_of(scope)
        if scope.pop(_ADMITTED, 0):
            self.requests.give_back(client)
        held = scope.pop(_HELD, 0)
        if held:
            self.memory.give_back(client, held)

    async def read(self, scope: Scope, receive: Receive, maximum: int | None = None) -> bytes:
        """The whole body. Raises Problem (408, 413, 503) or ClientDisconnected."""
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
        """The body as it comes, of any length; what was taken is held no longer.

        Raises Problem (408) where the next piece does not come in time, or ClientDisconnected.
        """
        more = True
        while more:
            async with self._in_time():
                message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            yield piece
            self.let_go(scope, len(piece))
            more = message.get("more_body", False)

    def let_go(self, scope: Scope, size: int) -> None:
        """So much of what the request holds is done with."""
        held = min(size, scope.get(_HELD, 0))
        if held:
            scope[_HELD] -= held
            self.memory.give_back(client_of(scope), held)

    def interrupt(self) -> None:
        """Wait for no further part of any body: the service is ending."""
        self.is_ending = True
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
        """Raises Problem (408, 503) where what is awaited does not come."""
        deadline = asyncio.timeout(0 if self.is_ending else self.timeout_s)
        self._receiving.add(deadline)
        try:
            async with deadline:
                yield
        except TimeoutError:
            raise self._not_received() from None
        finally:
            self._receiving.discard(deadline)

    def _not_received(self) -> Problem:
        if self.is_ending:
            return shutdown_problem()
        return Problem(
            problems.REQUEST_TIMEOUT,
            f"the body was not there after {self.timeout_s:g} s; send it at once",
            headers={"connection": "close"},
        )


def shutdown_problem() -> Problem:
    return Problem(problems.SHUTTING_DOWN, "the service is ending; try again in a moment")


def too_large(limit: int) -> Problem:
    return Problem(
        problems.BODY_TOO_LARGE,
        f"the request's body is larger than {limit} bytes; send fewer or smaller messages",
        extra={"limit": limit},
    )


def client_of(scope: Scope) -> str:
    """Whom a request is counted for: the address at the other end of its connection."""
    client = scope.get("client")
    address: str = client[0] if client else ""
    return address


def _connections_that_fit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    return max(1, int(limit * OPEN_FILES_PART))


def has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the head of a request announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """What is declared, or 0."""
    for key, value in headers:
        if key == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
