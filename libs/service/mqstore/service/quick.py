"""The quickest way of a request: all that its head decides is decided once for a connection.

A hot route with ``prepare`` is asked what it does with a body under one head. From then on a
request under that head is a look at the limits, the body's own work and one write. Whatever is not
that plain does nothing here, and goes the direct way, which has all the answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from mqstore.service import logs
from mqstore.service.auth import Authenticator, Role
from mqstore.service.limits import Limits
from mqstore.service.metrics import HttpMetrics
from mqstore.service.problems import Problem
from mqstore.service.reply import Reply
from mqstore.storage.errors import StorageError

HEADS_KEPT: Final = 16
"""Of one connection."""
Headers = list[tuple[bytes, bytes]]


class Later(msgspec.Struct, frozen=True):
    """An answer for which nobody else need do anything: no coroutine, no task."""

    told: asyncio.Future[Any]
    """Done when there is one. Nobody cancels it."""
    answer: Callable[[asyncio.Future[Any]], bytes]
    """Its body in JSON. Raises what ``told`` says, as Problem or StorageError."""


Begun = bytes | Later | Coroutine[Any, Any, Reply] | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a hot route does with bodies under one head of one connection."""

    begin: Callable[[bytes, Mapping[str, str]], Begun]
    """Called with a body and the path's parameters: the answer's body, in JSON; what is left to do,
    where it did its work and waits; or None, Problem or StorageError, where nothing was done."""
    status: int = 200
    """Of an answer that ``begin`` gives."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the quick way asks of the service."""

    auth: Authenticator
    limits: Limits
    metrics: HttpMetrics
    next_id: Callable[[], str]


class Waiting(NamedTuple):
    """A request whose answer comes later."""

    told: asyncio.Future[Any]
    whole: Callable[[asyncio.Future[Any]], bytes]
    """To be called once it is done: the whole answer. Raises Problem, StorageError."""


Answered = bytes | Waiting | Coroutine[Any, Any, Reply] | None


class Quick:
    """One head of one connection. Used on the event loop only."""

    def __init__(
        self,
        prepared: Prepared,
        shared: Shared,
        *,
        route: str,
        method: str,
        role: Role,
        headers: Headers,
        client: str,
    ) -> None:
        """``route`` is its template. The head was checked by now."""
        self._begin = prepared.begin
        self._status = prepared.status
        self._auth, self._tokens = shared.auth, shared.auth.generation
        self._limits = shared.limits
        self._metrics = shared.metrics
        self._next_id = shared.next_id
        self._route = route
        self._method = method
        self._role = role
        self._headers = headers
        self._client = client
        self._default_headers: Headers | None = None
        self._start = b""

    def answer(self, body: bytes, params: Mapping[str, str], default_headers: Headers) -> Answered:
        """The whole answer; what is left to do, whose result it is; or None: nothing was done."""
        limits = self._limits
        if len(body) > limits.max_request or not limits.has_room(self._client):
            return None
        started = time.perf_counter()
        request_id = self._next_id()
        logs.request_id.set(request_id)
        try:
            if self._tokens != self._auth.generation:
                self._auth.check(self._headers, self._role)
                self._tokens = self._auth.generation
            found = self._begin(body, params)
        except (Problem, StorageError):
            return None
        if isinstance(found, bytes):
            return self._whole(found, default_headers, request_id, started)
        if isinstance(found, Later):
            return self._waiting(found, len(body), default_headers, request_id, started)
        return found

    def _waiting(
        self,
        later: Later,
        size: int,
        default_headers: Headers,
        request_id: str,
        started: float,
    ) -> Waiting:
        """It is counted and held like any other that waits."""
        limits, client = self._limits, self._client
        limits.requests.add(client, 1)
        limits.memory.add(client, size)
        self._metrics.in_flight += 1

        def whole(told: asyncio.Future[Any]) -> bytes:
            limits.requests.give_back(client)
            limits.memory.give_back(client, size)
            self._metrics.in_flight -= 1
            return self._whole(later.answer(told), default_headers, request_id, started)

        return Waiting(later.told, whole)

    def _whole(
        self, found: bytes, default_headers: Headers, request_id: str, started: float
    ) -> bytes:
        if default_headers is not self._default_headers:
            self._default_headers = default_headers
            self._start = _start(self._status, default_headers)
        seconds = time.perf_counter() - started
        self._metrics.observe(self._route, self._method, self._status, seconds)
        return b"%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (
            *(self._start, len(found), request_id.encode()),
            found,
        )


def _start(status: int, default_headers: Headers) -> bytes:
    """The head up to what differs from answer to answer."""
    headers = (*default_headers, (b"content-type", b"application/json"))
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % each for each in headers)
