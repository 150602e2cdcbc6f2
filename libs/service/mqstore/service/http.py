"""The outermost ASGI application: request ids, limits, metrics, problems, and the hot routes.

FastAPI serves all other routes. A hot route is a coroutine over bytes with an OpenAPI operation of
its own, so that it is documented like the others. A hot route with ``prepare`` also serves plain
requests on the fast path (``mqstore.service.fast_path``), without ASGI.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqstore.service import compression, integers, logs, problems
from mqstore.service.auth import Authenticator
from mqstore.service.limits import (
    CONTROL_BODY_SIZE_MAX,
    ClientDisconnected,
    Limits,
    client_of,
    content_length,
    has_body,
    shutdown_problem,
)
from mqstore.service.metrics import Histogram, HttpMetrics
from mqstore.service.problems import Problem
from mqstore.service.read_conditions import has_condition
from mqstore.storage.errors import StorageError
from mqstore.storage.exchanges import RequestIds
from mqstore.wire.operation import Role

log = logs.get(__name__)

QUERY_PARAMETERS_MAX: Final = 100
API: Final = "/v1/"
"""Beginning of the paths that need a token: a request without one is refused with its body
unread."""
ROUTE_CACHE_SIZE: Final = 1024
"""Maximum number of paths in the route cache."""
BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
METHODS: Final = BODY_METHODS | {"GET", "HEAD", "OPTIONS"}
PROBLEM: Final = "mqstore.problem"
"""Key of a request's scope: the name of the problem that a FastAPI route replied with."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate in JSON, of a pair or alone."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The reply of a hot route: status, headers and the whole body."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    request_id: str | None = None
    """The request's id, where another service chose it."""

    @classmethod
    def of_problem(cls, problem: Problem, request_id: str) -> Reply:
        """Build the reply for a problem."""
        headers = tuple((k.encode(), v.encode("latin-1")) for k, v in problem.headers.items())
        content_type = problems.CONTENT_TYPE.encode()
        return cls(problem.body(request_id), problem.kind.status, content_type, headers)

    def head(self, request_id: str) -> tuple[tuple[bytes, bytes], ...]:
        """Return all header fields, with the request's id."""
        return (
            (b"content-type", self.content_type),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
            (b"x-request-id", (self.request_id or request_id).encode()),
        )


class DeferredReply(ABC):
    """A reply that is sent later. Used on the event loop only."""

    __slots__ = ()
    needs_client: bool = False
    """Whether ``task`` is cancelled when the client disconnects."""

    @abstractmethod
    def then(self, callback: Callable[[], object]) -> None:
        """Call back once, after the caller has returned, when ``reply`` may be called."""

    @abstractmethod
    def reply(self) -> bytes | Reply:
        """Return the reply, or its body in JSON. Raises the problem of the request."""

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """The task that makes the reply, if there is one."""
        return None

    def disconnect(self) -> None:
        """Cancel the work that only this client needs, after the client disconnected."""
        if self.needs_client and self.task is not None:
            self.task.cancel()


class FutureReply(DeferredReply):
    """A reply that is sent when a future resolves."""

    __slots__ = ("_future", "_reply", "needs_client")

    def __init__(
        self,
        future: asyncio.Future[Any],
        reply: Callable[[asyncio.Future[Any]], bytes | Reply] = asyncio.Future.result,
        *,
        needs_client: bool = False,
    ) -> None:
        """``future`` is never cancelled, unless it is a task. ``reply`` returns the reply from the
        resolved future."""
        self._future = future
        self._reply = reply
        self.needs_client = needs_client

    def then(self, callback: Callable[[], object]) -> None:
        """See ``DeferredReply``."""
        self._future.add_done_callback(lambda _: callback())

    def reply(self) -> bytes | Reply:
        """See ``DeferredReply``. Raises the future's exception."""
        return self._reply(self._future)

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """See ``DeferredReply``."""
        return self._future if isinstance(self._future, asyncio.Task) else None


async def await_reply(deferred: DeferredReply) -> bytes | Reply:
    """Wait for a deferred reply, and return it. Raises the problem of the request."""
    is_ready = asyncio.Event()
    deferred.then(is_ready.set)
    await is_ready.wait()
    return deferred.reply()


HotResult = bytes | Reply | DeferredReply | None
"""A reply's body in JSON, a reply, or a reply that is sent later. None: the fast path cannot
serve the request and has changed nothing."""


Lane = Callable[[bytes, bytes, bytes], bytes | None]
"""Serves a request without a body that differs from the prepared one in one value: a number of its
query, an offset message id at the end of its path, or the name before the action of a POST.

Gets the value, the bytes with which the reply begins (status line and default header fields) and
those that end its head. Returns the whole reply, with status 200. None, Problem, StorageError,
OSError: it has changed nothing, and the request takes the slow path."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A hot route after the checks of one request head; serves all bodies under that head."""

    begin: Callable[[bytes, Mapping[str, str]], HotResult]
    """Handles a body, with the parameters of the path. Raises Problem or StorageError before it
    has changed anything."""
    status: int = 200
    """Status of a reply that is a body in JSON."""
    lane: Lane | None = None
    """Serves requests of the same head with another value (``plain.split_value``)."""


def refuse_repeated(names: Iterable[str]) -> None:
    """Raise Problem (400) for a parameter that is given twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Problem(problems.BAD_PARAMETER, f"{name[:100]!r} is given twice; send it once")
        seen.add(name)


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise Problem (400) for a parameter that is not among ``known``."""
    offered_names = set(known)
    unknown = set(given) - offered_names
    if unknown:
        offered = ", ".join(sorted(offered_names)) or "none"
        raise Problem(
            problems.BAD_PARAMETER,
            f"unknown parameter {min(unknown)[:100]!r}; known ones: {offered}",
        )


class HotRequest:
    """One request of a hot route."""

    __slots__ = ("_limits", "_receive", "params", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, params: Mapping[str, str], limits: Limits
    ) -> None:
        self.scope = scope
        self.params = params
        self._receive = receive
        self._limits = limits

    def header(self, name: bytes) -> bytes | None:
        """Return the value of the first header with a name in lower case, or None."""
        for key, value in self.scope["headers"]:
            if key == name:
                found: bytes = value
                return found
        return None

    @property
    def media_type(self) -> bytes:
        """The content type without parameters, in lower case; empty without the header."""
        return (self.header(b"content-type") or b"").partition(b";")[0].strip().lower()

    def query(self) -> dict[str, str]:
        """Parse the query's parameters. Raises Problem (400) for an invalid or repeated one."""
        raw: bytes = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=QUERY_PARAMETERS_MAX,
            )
        except ValueError as error:
            raise Problem(problems.BAD_PARAMETER, f"the query cannot be read: {error}") from None
        refuse_repeated(name for name, _ in pairs)
        return dict(pairs)

    async def body(self) -> bytes:
        """Receive the whole body. Raises Problem (408, 413, 503), ClientDisconnected."""
        return await self._limits.read(self.scope, self._receive)

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body of a route that ``streams``.

        Raises Problem (408), ClientDisconnected.
        """
        return self._limits.pieces(self.scope, self._receive)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects. Receive the body before."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def await_while_connected(request: HotRequest, reply: Awaitable[Reply]) -> Reply:
    """Await a reply; cancel it when the client disconnects. Raises ClientDisconnected."""
    task = asyncio.ensure_future(reply)
    disconnect = asyncio.ensure_future(request.wait_for_disconnect())
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnected
        return task.result()
    finally:
        task.cancel()
        disconnect.cancel()


Handler = Callable[[HotRequest], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class HotRoute:
    """A route with a fast path. ``template`` is an OpenAPI path such as ``/v1/topics/{topic}``."""

    method: str
    template: str
    role: Role | None
    handler: Handler | None
    """Serves what the fast path does not; None: FastAPI does."""
    operation: dict[str, Any] | None
    """Its OpenAPI operation object; None where FastAPI has it."""
    streams: bool = False
    """Whether a body may be of any length: the handler receives it in ``pieces``."""
    prepare: Callable[[HotRequest], Prepared] | None = None
    """Checks a request head, before the body is received; None: no fast path. Raises what
    ``handler`` would raise for this head."""
    any_path: bool = False
    """Whether one ``Prepared`` serves all paths of this route: set it where the path differs from
    request to request."""
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        expression = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.template)
        object.__setattr__(self, "pattern", re.compile(expression))


class Front:
    """The ASGI application that uvicorn calls."""

    def __init__(
        self,
        app: ASGIApp,
        hot_routes: Iterable[HotRoute],
        *,
        auth: Authenticator,
        limits: Limits,
        metrics: HttpMetrics,
        access_log: bool = False,
        await_condition: Callable[[Scope], Awaitable[None]] | None = None,
    ) -> None:
        """``await_condition`` waits until a request with a condition may be answered; it raises
        the Problem of one that may not."""
        self._app = app
        self._await_condition = await_condition
        self._hot = tuple(hot_routes)
        self.hot_route = lru_cache(maxsize=ROUTE_CACHE_SIZE)(self._find_hot_route)
        """Returns the hot route of a method and a percent-decoded path, and the path's
        parameters; None for other routes."""
        self.auth = auth
        self.limits = limits
        self.metrics = metrics
        self._access_log = access_log
        self.ids = RequestIds(secrets.token_hex(4))
        """Generates the ids of requests without one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        received = scope
        method = scope["method"] if scope["method"] in METHODS else "other"
        if method == "HEAD":  # handled as GET; uvicorn leaves the body out
            scope = {**scope, "method": "GET"}
        request_id = given_id(scope["headers"]) or self.ids.next()
        exchange = _Exchange(send, request_id, received, self.limits)
        if exchange.integers_as_strings:
            scope = integers.with_numbers(scope)
        logs.request_id.set(request_id)
        started = time.perf_counter()
        self.metrics.in_flight += 1
        route = "unmatched"
        try:
            self.limits.admit(received)
            route = await self._answer(scope, receive, exchange)
        except ClientDisconnected:
            pass
        except (Exception, asyncio.CancelledError) as error:
            await exchange.send_problem(self.problem_for(error, scope["path"]))
        finally:
            self.limits.release(received)
            self.metrics.in_flight -= 1
            self.count(
                _template(scope, route),
                method,
                exchange.status,
                time.perf_counter() - started,
                client_of(received),
                exchange.problem or scope.get(PROBLEM),
            )

    def problem_for(self, error: BaseException, path: str) -> Problem:
        """Return the problem for a request that raised an error; log an unexpected one."""
        if isinstance(error, Problem):
            return error
        if isinstance(error, StorageError):
            return problem_of(error)
        if isinstance(error, asyncio.CancelledError):
            return shutdown_problem()
        if isinstance(error, OSError):
            return problem_of_system(error)
        log.error("request failed", exc_info=error, path=path[:200])
        return internal_problem()

    def count(
        self,
        route: str,
        method: str,
        status: int,
        seconds: float,
        client: str,
        problem: str | None = None,
    ) -> None:
        """Count one reply, and log it with ``access_log``. ``problem`` is the problem's name."""
        self.metrics.observe(route, method, status, seconds)
        if problem is not None:
            self.metrics.refused(route, problem)
        if self._access_log:
            # The route, not the path: path and query may hold data of the application.
            log.info(
                "answered",
                method=method,
                route=route,
                status=status,
                problem=problem,
                seconds=round(seconds, 6),
                client=client,
            )

    def counter(
        self, route: HotRoute, status: int, client: str
    ) -> Callable[[float], None] | Histogram:
        """Counts a reply with this status that took so many seconds, as ``count`` does."""
        if self._access_log:
            return partial(self._count_one, route, status, client)
        return self.metrics.latency(route.template, route.method, status)

    def _count_one(self, route: HotRoute, status: int, client: str, seconds: float) -> None:
        self.count(route.template, route.method, status, seconds, client)

    def interrupt(self) -> None:
        """Stop waiting for request bodies, because the service is shutting down."""
        self.limits.interrupt()

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> str:
        if self._await_condition is not None and has_condition(scope["headers"]):
            await self._await_condition(scope)
        hot = self.hot_route(scope["method"], scope["path"])
        handler = None if hot is None else hot[0].handler
        if hot is not None and handler is not None:
            scope["mqstore.route"] = hot[0].template
        if has_body(scope["headers"]):
            if scope["path"].startswith(API):
                self.auth.check(scope["headers"], None)
            compression.refuse_encoded(scope["headers"])
            if hot is None or hot[0].method not in BODY_METHODS:
                receive = await self._buffered(scope, receive)
        if hot is not None and handler is not None:
            route, params = hot
            self.auth.check(scope["headers"], route.role)
            reply = await handler(HotRequest(scope, receive, params, self.limits))
            await exchange.send_reply(reply)
            return route.template
        send = exchange.send
        await self._app(
            scope, receive, integers.encoding(send) if exchange.integers_as_strings else send
        )
        return "unmatched"

    def _find_hot_route(self, method: str, path: str) -> tuple[HotRoute, dict[str, str]] | None:
        for route in self._hot:
            if method == route.method:
                match = route.pattern.fullmatch(path)
                if match is not None:
                    return route, match.groupdict()
        return None

    async def _buffered(self, scope: Scope, receive: Receive) -> Receive:
        body = await self.limits.read(scope, receive, CONTROL_BODY_SIZE_MAX)
        _refuse_half_surrogates(body)
        messages = iter(({"type": "http.request", "body": body, "more_body": False},))

        async def replay() -> Message:
            return next(messages, None) or await receive()

        return replay


def given_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the request's id that the client sent; None without a valid one."""
    for key, value in headers:
        if key == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return None


class _Exchange:
    """The response to one request: adds the request's id, keeps its status and problem, and
    replaces a large one by a problem while memory is short."""

    __slots__ = (
        "_is_refused",
        "_limits",
        "_scope",
        "_send",
        "_start",
        "integers_as_strings",
        "problem",
        "request_id",
        "started",
        "status",
    )

    def __init__(self, send: Send, request_id: str, scope: Scope, limits: Limits) -> None:
        self._send = send
        self._scope = scope
        self._limits = limits
        self._is_refused = False
        self._start: Message | None = None
        """The start of a response that is compressed if its body is whole."""
        self.integers_as_strings = integers.are_strings(scope)
        self.problem: str | None = None
        self.request_id = request_id
        self.status = 499
        self.started = False

    async def send(self, message: Message) -> None:
        """Send a message of a FastAPI response."""
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            try:
                self._limits.hold_answer(self._scope, content_length(headers))
            except Problem as problem:
                await self.send_problem(problem)
                self._is_refused = True
                return
            self.started = True
            self.status = message["status"]
            message["headers"] = [*headers, (b"x-request-id", self.request_id.encode())]
            if compression.is_wanted(self._scope, message["headers"]):
                self._start = message
                return
        elif self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body", False):
                body = await compression.compress(message["body"])
                start["headers"] = compression.compressed_head(start["headers"], len(body))
                message = {**message, "body": body}
            await self._send(start)
        await self._send(message)

    async def send_reply(self, reply: Reply) -> None:
        """Send the whole reply of a hot route. Raises Problem (429, 503) before it is sent."""
        if self.integers_as_strings:
            body, kind = integers.encode(reply.body, reply.content_type)
            reply = msgspec.structs.replace(reply, body=body, content_type=kind)
        self._limits.hold_answer(self._scope, len(reply.body))
        self.started = True
        self.status = reply.status
        headers, body = list(reply.head(self.request_id)), reply.body
        if compression.is_wanted(self._scope, headers):
            body = await compression.compress(body)
            headers = compression.compressed_head(headers, len(body))
        start = {"type": "http.response.start", "status": reply.status, "headers": headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    async def send_problem(self, problem: Problem) -> None:
        """Send a problem, unless a response has begun."""
        if self.started:
            return
        self.problem = problem.kind.name
        await self.send_reply(Reply.of_problem(problem, self.request_id))


def _refuse_half_surrogates(body: bytes) -> None:
    """Raise Problem (400) for JSON with half a surrogate pair in a string.

    FastAPI accepts it, but no name in a store or file system can be encoded with it.
    """
    if _SURROGATE.search(body) is None:
        return
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Problem(
            problems.BAD_JSON,
            f"the body is no JSON, or a string holds half a surrogate pair ({error}); send UTF-8",
        ) from None


def problem_of(error: StorageError) -> Problem:
    """Return the problem for a storage error; log one without a problem type."""
    problem = problems.from_storage(error)
    if problem is None:
        log.error("storage error without a problem type", exc_info=error)
        return internal_problem()
    return problem


def problem_of_system(error: OSError) -> Problem:
    """Return the problem for an error of the system; log one that is no full disk."""
    problem = problems.from_system(error)
    if problem is None:
        log.error("request failed", exc_info=error)
        return internal_problem()
    return problem


def internal_problem() -> Problem:
    """Return the problem for an unexpected error, without its details."""
    return Problem(
        problems.INTERNAL, "a defect of the service; its log has the error under requestId"
    )


def _template(scope: Scope, known: str) -> str:
    hot: str | None = scope.get("mqstore.route")
    if hot is not None:
        return hot
    route = scope.get("route")
    return getattr(route, "path_format", known)
