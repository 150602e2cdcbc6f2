"""uvicorn's HTTP protocol with bounds on what one connection may make it hold, and with a shorter
way for plain requests of hot routes: past uvicorn's parser and tasks, to the same application."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mqstore.service import direct, plain, problems
from mqstore.service.http import BEGUN, Front, HotRoute
from mqstore.service.limits import ANSWER_SIZE, UNLIMITED_PATHS, Connections, Limits, Scope
from mqstore.service.problems import Problem
from mqstore.service.quick import HEADS_KEPT, Answered, Quick, Waiting
from mqstore.service.reply import Reply

_ENCODING_OVERHEAD: Final = 8
"""Bytes on the wire for one byte of body, at most: chunks of one byte are six."""
_LINGER_S: Final = 2.0
"""How long a refused client may go on sending: closed at once, it might never read the answer."""
_COLLECT_MAX_S: Final = 1.0
"""How long the direct way waits for the rest of a body; then it is a slow one, and uvicorn's."""
_FIELD_EXTRA: Final = 4
"""Bytes of a header field besides its name and value: colon, space, line end."""
_UNLIMITED: Final = tuple(path.encode() for path in UNLIMITED_PATHS)


_Hot = tuple[HotRoute, Mapping[str, str]]
"""A request's route, with the path's parameters."""


@dataclass(slots=True)
class _Collected:
    """A plain request whose body is on its way."""

    request: plain.PlainRequest
    hot: _Hot
    parts: list[bytes]
    missing: int
    held: int
    patience: asyncio.TimerHandle


class BoundedProtocol(HttpToolsProtocol):
    """Drops a connection with an endless head, body or trailer, or one that takes no answer.

    httptools itself collects lines of any length; uvicorn waits for a request line for ever, and
    keeps what a client does not read.
    """

    max_header_size: ClassVar[int]
    max_message_size: ClassVar[int]
    """Bytes on the wire from the request line to the end of the body."""
    head_timeout_s: ClassVar[float]
    collect_s: ClassVar[float]
    send_timeout_s: ClassVar[float]
    front: ClassVar[Front]
    limits: ClassVar[Limits]
    open: ClassVar[Connections]
    needs_certificate: ClassVar[bool]
    answered: ClassVar[list[BoundedProtocol]]
    """Whose answer is written at the end of this turn of the loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_connected: Callable[[], None] = lambda: None
        """Called before this connection takes its place among the open ones."""
        self._address = ""
        self._overflow: Problem | None = None
        """The connection is one too many."""
        self._refusal: Problem | None = None
        """What is answered to all but health and metrics."""
        self._refused = False
        self._in_head = True
        self._in_message = False
        """The parser has some of a request, and not its end."""
        self._collected: _Collected | None = None
        self._plain_scope: dict[str, Any] = {}
        self._quick: dict[Hashable, Quick | None] = {}
        """By what has to be the same in a head, where there is a quickest way."""
        self._message_event = asyncio.Event()
        self._due = b""
        """An answer that is written soon."""
        self._used_at = 0.0
        """When the direct way last answered; it leaves the keep-alive timer alone."""
        self._received = 0
        self._unsent = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # as in uvicorn: its base class says BaseTransport
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.on_connected()
        self._overflow = self._refusal = self.open.enter(self, self._address)
        if self.needs_certificate and not transport.get_extra_info("peercert"):
            self._refusal = self._refusal or Problem(
                problems.UNAUTHENTICATED, "this service needs a client certificate; present one"
            )
        self._plain_scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
        }
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_head()
        self._unwatch_body()
        self._sent()
        self._forget_collected()
        self.open.leave(self, self._address, self._overflow)
        for cycle, _ in self.pipeline:  # those that will never begin
            self.limits.release(cast(Scope, cycle.scope))
        super().connection_lost(exc)

    def drop(self) -> None:
        self.transport.abort()

    def shutdown(self) -> None:
        self._write_due()
        self._leave_to_parser()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._write_due()
        if self._collected is not None:
            self._collect(self._collected, data)
        elif not self._begin_direct(data):
            self._parse(data)

    def _parse(self, data: bytes) -> None:
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
        """Whether a body of any length is being taken."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        hot = self.front.hot_route(cycle.scope["method"], cycle.scope["path"])
        return hot is not None and hot[0].streams

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sent()
        scope = cast(Scope, self.cycle.scope) if self.cycle is not None else {}
        # The transport keeps the whole answer until its last byte is sent.
        self._unsent = max(scope.get(ANSWER_SIZE, 0), self.transport.get_write_buffer_size())
        self.limits.memory.add(self._address, self._unsent)
        self._send_timer = self.loop.call_later(self.send_timeout_s, self.drop)

    def resume_writing(self) -> None:
        self._sent()
        super().resume_writing()

    def on_message_begin(self) -> None:
        if self._refused:
            return
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._received = 0

    def on_headers_complete(self) -> None:
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
        """The problem of a head that is too long or violates HTTP; None for a valid one."""
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
        # Trailers come here too; nobody reads them.
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        if self._refused or self.cycle.response_complete:
            return
        try:
            self.limits.hold(cast(Scope, self.cycle.scope), len(body))
        except Problem as problem:
            self._refuse(problem)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._unwatch_body()
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.cycle is not None and not self.pipeline:
            self.cycle.body = bytearray()  # of a body that nobody wanted
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(problems.BAD_PARAMETER, "the request is no valid HTTP/1.1"))

    # the direct way

    def _begin_direct(self, data: bytes) -> bool:
        """Whether a plain request begins here, which then goes the direct way."""
        if self._in_message or self._refusal is not None or not self._is_idle():
            return False
        request = plain.read(data)
        if request is None or request.body_at > self.max_header_size:
            return False
        hot = self.front.hot_route(request.head.method, request.head.path)
        if hot is None:
            return False
        missing = request.end - len(data)
        if not missing:
            self._answer(request, hot, data[request.body_at :])
            return True
        if missing < 0 or request.end - request.body_at > self.limits.max_request:
            return False
        self._unwatch_head()
        patience = self.loop.call_later(self.collect_s, self._leave_to_parser)
        self._collected = _Collected(request, hot, [], request.end, 0, patience)
        self._collect(self._collected, data)
        return True

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _collect(self, collected: _Collected, data: bytes) -> None:
        collected.parts.append(data)
        collected.missing -= len(data)
        try:
            self.limits.memory.take(self._address, len(data))
        except Problem:
            self._leave_to_parser()
            return
        collected.held += len(data)
        if collected.missing < 0:
            self._leave_to_parser()
        elif collected.missing == 0:
            self._forget_collected()
            collected.parts[0] = collected.parts[0][collected.request.body_at :]
            self._answer(collected.request, collected.hot, b"".join(collected.parts))

    def _leave_to_parser(self) -> None:
        """A body that is too slow, or more than can be held: uvicorn's way has the answers."""
        collected = self._collected
        if collected is not None:
            self._forget_collected()
            self._parse(b"".join(collected.parts))

    def _forget_collected(self) -> None:
        if self._collected is not None:
            self._collected.patience.cancel()
            self.limits.memory.give_back(self._address, self._collected.held)
            self._collected = None

    def _answer(self, request: plain.PlainRequest, hot: _Hot, body: bytes) -> None:
        self._unwatch_head()
        found = self._quick_answer(request.head, hot, body)
        if isinstance(found, bytes):
            self._write_soon(found)
            self._answered_directly()
            return
        cycle = self.cycle = self._cycle(request, body)
        if isinstance(found, Waiting):
            found.told.add_done_callback(partial(self._answer_later, found, cycle, len(body)))
        else:
            self._go_directly(cycle, found, len(body))

    def _cycle(self, request: plain.PlainRequest, body: bytes) -> direct.DirectCycle:
        return direct.DirectCycle(
            self._scope(request.head, request.headers),
            body,
            self.transport,
            self.flow,
            self.server_state.default_headers,
            self._message_event,
            self._write_soon,
            self._answered_directly,
        )

    def _go_directly(
        self, cycle: direct.DirectCycle, rest: Coroutine[Any, Any, Reply] | None, size: int
    ) -> None:
        """``rest`` is what is left to do of it, where it has begun."""
        scope = cast(Scope, cycle.scope)
        if rest is not None:
            scope[BEGUN] = rest
        context = contextvars.copy_context()
        coroutine = cycle.run_asgi(self.app)
        waits_for = direct.begin(coroutine, context)
        if waits_for is not None:
            self.limits.keep(scope, size)
            task = self.loop.create_task(direct.go_on(coroutine, waits_for), context=context)
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def _quick_answer(self, head: plain.Head, hot: _Hot, body: bytes) -> Answered:
        """As ``Quick.answer``."""
        route, params = hot
        key = (route.template, head.query, head.fields) if route.any_path else head
        if key in self._quick:
            quick = self._quick[key]
        else:
            if len(self._quick) == HEADS_KEPT:
                self._quick.clear()
            scope = self._scope(head, head.headers)
            quick = self._quick[key] = self.front.quick(scope, route, params)
        if quick is None or self.flow.write_paused:
            return None
        return quick.answer(body, params, self.server_state.default_headers)

    def _answer_later(
        self, waiting: Waiting, cycle: direct.DirectCycle, size: int, told: asyncio.Future[Any]
    ) -> None:
        try:
            answer = waiting.whole(told)
        except Exception as error:
            self._go_directly(cycle, _raised(error), size)
        else:
            cycle.answer_whole(answer)

    def _scope(self, head: plain.Head, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        return {
            **self._plain_scope,
            "method": head.method,
            "path": head.path,
            "query_string": head.query,
            "headers": headers,
        }

    def _write_soon(self, answer: bytes) -> None:
        """At the end of this turn of the loop, with those of other connections: a write wakes who
        waits for it, who would then take turns with us for each answer."""
        if self.pipeline:  # what is behind it would be written before it
            self.transport.write(answer)
            return
        self._due = answer
        if not self.answered:
            self.loop.call_soon(self._write_answers)
        self.answered.append(self)

    def _write_answers(self) -> None:
        answered = self.answered.copy()
        self.answered.clear()
        for each in answered:
            each._write_due()

    def _write_due(self) -> None:
        due, self._due = self._due, b""
        if due and not self.transport.is_closing():
            self.transport.write(due)

    def _answered_directly(self) -> None:
        if self.pipeline or self.flow.read_paused or self.timeout_keep_alive_task is None:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._used_at = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        left = self._used_at + self.timeout_keep_alive - self.loop.time()
        if self._collected is not None or not self._is_idle():
            left = self.timeout_keep_alive
        if left > 0:
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(left, handler)
        else:
            super().timeout_keep_alive_handler()

    # bounds

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
        """Close the connection of a slow body once its request was answered: no handler reads the
        rest. Before the answer, check again later: the handler may still read it."""
        if self._is_idle():
            self.transport.close()
        else:
            self._body_timer = self.loop.call_later(self.head_timeout_s, self._end_slow_body)

    def _sent(self) -> None:
        """Nothing waits to be sent any more, or nobody waits for it."""
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
            self.limits.memory.give_back(self._address, self._unsent)
            self._unsent = 0

    def _owes_an_answer(self) -> bool:
        """Whether a refusal would be taken for the answer to an earlier request."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return self._in_head or not cycle.more_body or cycle.response_started or bool(self.pipeline)

    def _refuse(self, problem: Problem) -> None:
        self._refused = True
        if self._owes_an_answer():
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
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._unwatch_head()
            self._head_timer = self.loop.call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()


async def _raised(error: Exception) -> Reply:
    raise error


def bounded_protocol(
    front: Front, *, max_header_size: int, send_timeout_s: float, needs_certificate: bool = False
) -> type[BoundedProtocol]:
    """The protocol class for this application and its limits: uvicorn wants a class."""
    limits = front.limits

    class Configured(BoundedProtocol):
        pass

    Configured.max_header_size = max_header_size
    Configured.max_message_size = max_header_size + _ENCODING_OVERHEAD * limits.max_request
    Configured.head_timeout_s = limits.timeout_s
    Configured.collect_s = min(limits.timeout_s, _COLLECT_MAX_S)
    Configured.send_timeout_s = send_timeout_s
    Configured.front = front
    Configured.limits = limits
    Configured.needs_certificate = needs_certificate
    Configured.open = Connections(limits.connections)
    Configured.answered = []
    return Configured
