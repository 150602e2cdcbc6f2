"""A head of a plain request after its checks, which are made once for each connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from mqstore.service import integers, logs
from mqstore.service.fast_path import plain
from mqstore.service.http import (
    DeferredReply,
    Front,
    HotRequest,
    HotRoute,
    Prepared,
    Reply,
    given_id,
)
from mqstore.service.limits import LARGE_ANSWER_SIZE, SAFE_METHODS
from mqstore.service.problems import Problem
from mqstore.service.read_conditions import has_condition
from mqstore.storage.errors import StorageError
from mqstore.storage.exchanges import Exchange, ValueCounts

Headers = list[tuple[bytes, bytes]]
_STATUS_LINE: Final = {
    each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus
}


class PreparedHead:
    """A checked head that handles the bodies under it. Used on the event loop only."""

    __slots__ = (
        "_client",
        "_count",
        "_default_headers",
        "_exchange",
        "_front",
        "_given_id",
        "_head",
        "_prepared",
        "_route",
        "_start_bytes",
        "_tokens",
    )

    def __init__(
        self,
        front: Front,
        route: HotRoute,
        prepared: Prepared,
        head: plain.Head,
        client: str,
    ) -> None:
        self._front = front
        self._tokens = front.auth.generation
        self._route = route
        self._prepared = prepared
        self._head = head
        self._client = client
        self._default_headers: Headers | None = None
        self._start_bytes = b""
        self._given_id = given_id(head.headers)
        count = front.counter(route, prepared.status, client)
        self._count = count.observe if isinstance(count, ValueCounts) else count
        self._exchange = Exchange(
            prepared.begin,
            later=self._reply_later,
            encode_start=self._encode_start,
            note_id=logs.request_id.set,
            ids=front.ids,
            given_id=self._given_id,
            count=count,
        )

    @classmethod
    def of(
        cls,
        front: Front,
        route: HotRoute,
        head: plain.Head,
        params: Mapping[str, str],
        client: tuple[str, int] | None,
    ) -> PreparedHead | None:
        """Check a head. Returns None for a rejected head, for a route without a fast path, for
        integers as strings, and for a condition that may wait: uvicorn then handles the request,
        and sends the problem."""
        if route.prepare is None:
            return None
        scope = {
            "method": head.method,
            "path": head.path,
            "query_string": head.query,
            "headers": head.headers,
            "client": client,
        }
        if integers.are_strings(scope) or has_condition(head.headers):
            return None
        try:
            front.auth.check(head.headers, route.role)
            prepared = route.prepare(HotRequest(scope, _no_body, params, front.limits))
        except (Problem, StorageError):
            return None
        return cls(front, route, prepared, head, client[0] if client else "")

    def reply(
        self, body: bytes, params: Mapping[str, str], default_headers: Headers
    ) -> bytes | PendingReply | None:
        """Handle a body; return the bytes of the reply, or a pending reply.

        None: uvicorn must handle the request; nothing was changed.
        """
        limits = self._front.limits
        if len(body) > limits.max_request or not limits.has_room(self._client):
            return None
        try:
            self._check_tokens()
            return self._exchange.reply(body, params, default_headers)
        except (Problem, StorageError):
            return None

    def _reply_later(
        self,
        found: Reply | DeferredReply,
        size: int,
        default_headers: Headers,
        request_id: str,
        started: float,
    ) -> bytes | PendingReply:
        """Return the reply to a body of ``size`` bytes that is more than a body in JSON."""
        if isinstance(found, DeferredReply):
            return PendingReply(self, found, size, default_headers, request_id, started)
        return self.encode(found, default_headers, request_id, started)

    def _encode_start(self, default_headers: Headers) -> bytes:
        """Return the head of a reply that is a body in JSON, up to its length."""
        json = (b"content-type", b"application/json")
        return _lines(self._prepared.status, (*default_headers, json))

    def repeats(self, params: Mapping[str, str]) -> bool:
        """Whether a client is likely to send a request to the same path again: not where each
        request names another transaction or message."""
        return not (self._route.any_path and params)

    @property
    def has_lane(self) -> bool:
        """Whether ``reply_in_lane`` may reply."""
        return self._prepared.lane is not None

    def reply_in_lane(self, value: bytes, default_headers: Headers) -> bytes | None:
        """Handle a request of this head with another value; return the bytes of the reply.

        None: nothing was changed, and the request takes the slow path.
        """
        front, lane = self._front, self._prepared.lane
        if lane is None or not front.limits.has_room(self._client):
            return None
        started = time.monotonic()
        request_id = self._given_id or front.ids.next()
        logs.request_id.set(request_id)
        ending = b"x-request-id: %b\r\n\r\n" % request_id.encode()
        try:
            self._check_tokens()
            reply = lane(value, self._start(default_headers), ending)
        except (Problem, StorageError, OSError):
            return None
        if reply is None:
            return None
        if len(reply) > LARGE_ANSWER_SIZE:
            refusal = front.limits.memory.refusal(self._client, len(reply))
            if refusal is not None:
                return self.encode_problem(refusal, default_headers, request_id, started)
        self._count(time.monotonic() - started)
        return reply

    def encode(
        self, found: bytes | Reply, default_headers: Headers, request_id: str, started: float
    ) -> bytes:
        """Count a reply, and return its bytes on the wire."""
        if isinstance(found, bytes):
            return self._exchange.encode(found, default_headers, request_id, started)
        try:
            self._check(found)
        except Exception as error:
            return self.encode_problem(error, default_headers, request_id, started)
        return self._encode(found, default_headers, request_id, started)

    def encode_problem(
        self, error: BaseException, default_headers: Headers, request_id: str, started: float
    ) -> bytes:
        """Count the problem of a request that failed, and return its bytes on the wire."""
        problem = self._front.problem_for(error, self._head.path)
        reply = Reply.of_problem(problem, request_id)
        return self._encode(reply, default_headers, request_id, started, problem.kind.name)

    def release(self, size: int) -> None:
        """End the count of a request with a pending reply and a body of ``size`` bytes."""
        limits = self._front.limits
        limits.requests.give_back(self._client)
        limits.memory.give_back(self._client, size)
        self._front.metrics.in_flight -= 1

    def hold(self, size: int) -> None:
        """Count a request with a pending reply and a body of ``size`` bytes."""
        limits = self._front.limits
        limits.requests.add(self._client, 1)
        limits.memory.add(self._client, size)
        self._front.metrics.in_flight += 1

    def count_disconnected(self, started: float) -> None:
        """Count a request whose client disconnected before the reply."""
        route, seconds = self._route, time.perf_counter() - started
        self._front.count(route.template, route.method, 499, seconds, self._client)

    def _start(self, default_headers: Headers) -> bytes:
        """Return the status line and the default header fields, which change once a second."""
        if default_headers is not self._default_headers:
            self._default_headers = default_headers
            self._start_bytes = _lines(self._prepared.status, (*default_headers,))
        return self._start_bytes

    def _check_tokens(self) -> None:
        """Check the head again after the tokens changed. Raises Problem."""
        generation = self._front.auth.generation
        if self._tokens != generation:
            self._front.auth.check(self._head.headers, self._route.role)
            self._tokens = generation

    def _check(self, reply: Reply) -> None:
        """Check a reply before it is sent.

        Raises Problem (429, 503) for a large reply to a safe method above the limit of bytes, and
        RuntimeError for a header with more than one line.
        """
        size = len(reply.body)
        if size > LARGE_ANSWER_SIZE and self._route.method in SAFE_METHODS:
            refusal = self._front.limits.memory.refusal(self._client, size)
            if refusal is not None:
                raise refusal
        if any(b"\n" in value or b"\r" in value for _, value in reply.headers):
            raise RuntimeError("a header's value has more than one line")

    def _encode(
        self,
        reply: Reply,
        default_headers: Headers,
        request_id: str,
        started: float,
        problem: str | None = None,
    ) -> bytes:
        route, seconds = self._route, time.perf_counter() - started
        self._front.count(
            route.template, route.method, reply.status, seconds, self._client, problem
        )
        lines = _lines(reply.status, (*default_headers, *reply.head(request_id)))
        return b"%b\r\n%b" % (lines, reply.body)


@dataclass(slots=True)
class PendingReply:
    """A request whose reply is sent later. It counts towards the limits until ``finish``."""

    head: PreparedHead
    deferred: DeferredReply
    size: int
    """Bytes of the request's body."""
    default_headers: Headers
    request_id: str
    started: float

    def __post_init__(self) -> None:
        self.head.hold(self.size)

    def finish(self, *, is_connected: bool) -> bytes:
        """Return the bytes of the reply when ``deferred`` has called back. Call it once."""
        self.head.release(self.size)
        logs.request_id.set(self.request_id)
        rest = self.default_headers, self.request_id, self.started
        try:
            found = self.deferred.reply()
        except (Exception, asyncio.CancelledError) as error:
            if not is_connected and isinstance(error, asyncio.CancelledError):
                self.head.count_disconnected(self.started)
                return b""
            return self.head.encode_problem(error, *rest)
        return self.head.encode(found, *rest)


def _lines(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return _STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % each for each in headers])


async def _no_body() -> Any:
    raise RuntimeError("the body is not received yet while a head is checked")
