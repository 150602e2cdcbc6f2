"""A connection with the fast path: a plain request is handled when its last byte is received."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from mqstore.service.fast_path import plain
from mqstore.service.fast_path.bounds import BoundedProtocol
from mqstore.service.fast_path.prepared import PendingReply, PreparedHead
from mqstore.service.http import Front
from mqstore.service.limits import Connections
from mqstore.service.problems import Problem
from mqstore.storage.exchanges import RepeatedHead

HEADS_MAX: Final = 16
"""Prepared heads of one connection."""
LANES_MAX: Final = 64
"""Heads with a lane of one connection, such as those of the queues that a consumer pulls."""
_COLLECT_MAX_S: Final = 1.0
"""Longest wait for the rest of a body on the fast path; uvicorn handles a slower one."""
_ENCODING_OVERHEAD: Final = 8
"""Limit of the bytes on the wire for one byte of body: a chunk of one byte takes six."""

_Prepared = tuple[PreparedHead, Mapping[str, str]]
"""The prepared head of a request, and the parameters of its path."""


@dataclass(slots=True)
class _Collected:
    """A plain request whose body is not complete."""

    prepared: _Prepared
    request: plain.PlainRequest
    timer: asyncio.TimerHandle
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class FastConnection(BoundedProtocol):
    """One connection. While a reply is pending, it keeps received bytes and pauses reading."""

    collect_s: ClassVar[float]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heads: dict[Hashable, PreparedHead | None] = {}
        """Prepared heads by the parts that must be equal; None: the fast path rejects the head."""
        self._recent: tuple[tuple[RepeatedHead, _Prepared], ...] = ()
        """Heads of plain requests with a body, and what does their requests, newest first: two, as
        a consumer receives and acknowledges in turn."""
        self._is_ready = False
        """Whether the next bytes may be a request under such a head: uvicorn has no bytes of this
        connection, no request is incomplete, no reply is pending, and the client reads."""
        self._lanes: dict[tuple[bytes, bytes], PreparedHead] = {}
        """Prepared heads with a lane by what is before and after their value."""
        self._collected: _Collected | None = None
        self._pending: PendingReply | None = None
        self._behind = b""
        """Bytes received after the request whose reply is pending."""
        self._used_at = 0.0
        """Time of the latest reply of the fast path, which does not restart uvicorn's timer."""
        self._is_shutting_down = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop collected bytes, and cancel a pending reply that needs its client."""
        self._forget_collected()
        self._take_behind()
        if self._pending is not None:
            self._pending.deferred.disconnect()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection after the reply that is pending, because the service shuts down."""
        self._leave_to_uvicorn()
        self._is_shutting_down = True
        if self._pending is None:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Handle a plain request of a hot route; leave other bytes to uvicorn."""
        if self._is_ready:
            for repeated, prepared in self._recent:
                body = repeated.body_of(data)
                if body is not None:
                    if not self._reply(prepared, body):
                        self._is_ready = False
                        super().data_received(data)
                    return
        if self._pending is not None:
            self._keep_behind(data)
        elif self._collected is not None:
            self._collect(self._collected, data)
        elif not self._begin(data):
            self._is_ready = False
            super().data_received(data)

    def pause_writing(self) -> None:
        """Leave the fast path until the client has read its replies."""
        self._is_ready = False
        super().pause_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it was idle on both paths, else restart the timer."""
        left = self._used_at + self.timeout_keep_alive - self.loop.time()
        if self._collected is not None or self._pending is not None or not self._is_idle():
            left = self.timeout_keep_alive
        if left > 0:
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(left, handler)
        else:
            super().timeout_keep_alive_handler()

    # requests

    def _begin(self, data: bytes) -> bool:
        """Handle a plain request that begins with ``data``; return whether it does."""
        if (
            self._refused
            or self._in_message
            or self._refusal is not None
            or self.flow.write_paused
            or not self._is_idle()
        ):
            return False
        if self._lanes and self._reply_in_lane(data):
            return True
        request = plain.read(data)
        if request is None or request.body_at > self.max_header_size:
            return False
        prepared = self._prepare(request.head)
        if prepared is None or request.end < len(data):
            return False
        if request.end == len(data):
            if prepared[0].has_lane and self._keep_lane(data, request, prepared[0]):
                return True
            if request.repeated is not None and prepared[0].repeats(prepared[1]):
                self._recent = (request.repeated, prepared), *self._recent[:1]
            return self._reply(prepared, data[request.body_at :])
        if request.end - request.body_at > self.limits.max_request:
            return False
        self._unwatch_head()
        self._is_ready = False
        timer = self.loop.call_later(self.collect_s, self._leave_to_uvicorn)
        self._collected = _Collected(prepared, request, timer)
        self._collect(self._collected, data)
        return True

    def _prepare(self, head: plain.Head) -> _Prepared | None:
        hot = self.front.hot_route(head.method, head.path)
        if hot is None:
            return None
        route, params = hot
        key = (route.template, head.query, head.fields) if route.any_path else head
        if key in self._heads:
            found = self._heads[key]
        else:
            if len(self._heads) == HEADS_MAX:
                self._heads.clear()
            found = PreparedHead.of(self.front, route, head, params, self.client)
            self._heads[key] = found
        return None if found is None else (found, params)

    def _collect(self, collected: _Collected, data: bytes) -> None:
        collected.parts.append(data)
        try:
            self.limits.memory.take(self._address, len(data))
        except Problem:
            self._leave_to_uvicorn()
            return
        collected.size += len(data)
        if collected.size > collected.request.end:
            self._leave_to_uvicorn()
        elif collected.size == collected.request.end:
            self._forget_collected()
            whole = b"".join(collected.parts)
            if not self._reply(collected.prepared, whole[collected.request.body_at :]):
                super().data_received(whole)

    def _leave_to_uvicorn(self) -> None:
        """Hand over a body that is too slow, or more than can be held."""
        collected = self._collected
        if collected is not None:
            self._forget_collected()
            super().data_received(b"".join(collected.parts))

    def _forget_collected(self) -> None:
        if self._collected is not None:
            self._collected.timer.cancel()
            self.limits.memory.give_back(self._address, self._collected.size)
            self._collected = None

    # replies

    def _reply(self, prepared: _Prepared, body: bytes) -> bool:
        """Handle a whole request; return False, with no effect, if uvicorn must handle it."""
        head, params = prepared
        reply = head.reply(body, params, self.server_state.default_headers)
        if reply is None:
            return False
        if self._head_timer is not None:
            self._unwatch_head()
        if isinstance(reply, bytes):
            self._write_reply(reply)
        else:
            self._is_ready = False
            self._pending = reply
            task = reply.deferred.task
            if task is not None:  # uvicorn cancels tasks in a long shutdown
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            reply.deferred.then(self._finish)
        return True

    def _keep_lane(self, data: bytes, request: plain.PlainRequest, head: PreparedHead) -> bool:
        """Let this request, and those that differ from it in their value, take its lane; return
        whether this one was handled there. Not one with a body."""
        split = plain.split_value(data) if request.end == request.body_at else None
        if split is None or split[0] in self._lanes:
            return False
        if len(self._lanes) == LANES_MAX:
            self._lanes.clear()
        self._lanes[split[0]] = head
        return self._reply_in_lane(data)

    def _reply_in_lane(self, data: bytes) -> bool:
        """Handle a request in its lane; return False, with no effect, if it takes another way."""
        split = plain.split_value(data)
        head = None if split is None else self._lanes.get(split[0])
        if split is None or head is None:
            return False
        reply = head.reply_in_lane(split[1], self.server_state.default_headers)
        if reply is None:
            return False
        if self._head_timer is not None:
            self._unwatch_head()
        self._write_reply(reply)
        return True

    def _finish(self) -> None:
        """Write the pending reply, if the client is still connected."""
        pending = self._pending
        assert pending is not None, "a pending reply calls back once"
        is_connected = not self.transport.is_closing()
        reply = pending.finish(is_connected=is_connected)
        self._pending, behind = None, self._take_behind()
        if not is_connected:
            return
        if not self._is_shutting_down:
            self._write_reply(reply)
            if behind:
                self.data_received(behind)
        elif behind:
            self._write_reply(reply)
            self.data_received(behind)
            self.shutdown()
        else:
            head, end, body = reply.partition(b"\r\n\r\n")
            self.transport.writelines((head, b"\r\nconnection: close", end, body))
            self.transport.close()

    def _keep_behind(self, data: bytes) -> None:
        self.flow.pause_reading()
        self.limits.memory.add(self._address, len(data))
        self._behind += data

    def _take_behind(self) -> bytes:
        behind, self._behind = self._behind, b""
        if behind:
            self.limits.memory.give_back(self._address, len(behind))
            if not self.transport.is_closing():
                self.flow.resume_reading()
        return behind

    def _write_reply(self, reply: bytes) -> None:
        """Write a reply. uvloop sends it at the end of its iteration, with those of the others:
        each sending wakes a client."""
        self._is_ready = True
        self._written = len(reply)
        self._used_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.on_response_complete()
        self.transport.write(reply)


def connection_class(
    front: Front, *, max_header_size: int, send_timeout_s: float, needs_certificate: bool = False
) -> type[FastConnection]:
    """Build the protocol class for an application and its limits; uvicorn needs a class."""
    limits = front.limits

    class Configured(FastConnection):
        """The connections of one listener."""

    Configured.max_header_size = max_header_size
    Configured.max_message_size = max_header_size + _ENCODING_OVERHEAD * limits.max_request
    Configured.head_timeout_s = limits.timeout_s
    Configured.collect_s = min(limits.timeout_s, _COLLECT_MAX_S)
    Configured.send_timeout_s = send_timeout_s
    Configured.front = front
    Configured.limits = limits
    Configured.needs_certificate = needs_certificate
    Configured.open = Connections(limits.connections)
    return Configured
