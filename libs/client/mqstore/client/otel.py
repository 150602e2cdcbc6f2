"""Traces of the client by OpenTelemetry: ``Client(tracing=Tracing())``. Needs the extra
``mqstore-client[otel]``; nothing else of the client imports this module.

Spans follow OpenTelemetry's semantic conventions of messaging: ``create``, ``send``, ``receive``,
``process``, ``ack`` and ``nack``. The W3C trace context of the producer is in the properties
``traceparent`` and ``tracestate`` of a message.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel

from mqstore.client.errors import ProblemError
from mqstore.client.leases import Leases, Outcome, Release
from mqstore.client.new_message import NewMessage
from mqstore.client.requests import Call
from mqstore.wire.consumers import LeasedMessage, ReceiptResults, ReceivedMessages
from mqstore.wire.messages import Message
from mqstore.wire.produce import MessagePlace, ProduceReply
from mqstore.wire.queues import Pull
from mqstore.wire.transactions import BegunTransaction

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "mqstore.client.otel needs OpenTelemetry: pip install 'mqstore-client[otel]'"
    ) from error

Answer = TypeVar("Answer", bound=BaseModel)
Attributes = dict[str, str | int]

SYSTEM: Final = "mqstore"
_W3C: Final = TraceContextTextMapPropagator()
_PARENT: Final = "traceparent"


@dataclass(slots=True)
class _Sent:
    """A request within its span: the one to send, and what to do with the reply."""

    call: Call[Any]
    note: Callable[[Any], None] = lambda reply: None


class Tracing:
    """Makes the spans of one client, and of its producers and consumers. Thread-safe."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """``provider`` makes the tracer; by default the global one."""
        self._tracer = trace.get_tracer("mqstore.client", tracer_provider=provider)

    @contextmanager
    def processing(self, message: Message, group: str | None = None) -> Iterator[Span]:
        """Process a message inside the block: its span is the current one, and part of the trace of
        its producer.

        The span of a consumer's message ends when the message is settled. That of another message
        ends with the block; ``group`` is the one that consumes it.
        """
        known: Span | None = getattr(message, "_span", None)
        span = known or self.begin_processing(message, group)
        with trace.use_span(span, end_on_exit=known is None, set_status_on_exception=True):
            yield span

    def begin_processing(self, message: Message, group: str | None) -> Span:
        """Begin the span of a message that is processed from now on; the caller ends it."""
        context = _W3C.extract(message.properties)
        is_remote = trace.get_current_span(context).get_span_context().is_valid
        found = _attributes("process", "process", _source_of(message), group)
        found["messaging.message.id"] = message.offset_msg_id
        found["messaging.destination.partition.id"] = str(message.queue_id)
        return self._tracer.start_span(
            f"process {_source_of(message)}",
            context if is_remote else None,
            SpanKind.CONSUMER,
            attributes=found,
        )

    def of_group(self, group: str) -> Processing:
        """Return the spans of a consumer's messages."""
        return Processing(self, group)

    def create(self, message: NewMessage, topic: str) -> NewMessage:
        """Return a message of a producer with the context of a new span in its properties."""
        if _PARENT in message.properties:
            return message
        span = self._tracer.start_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("create", "create", topic),
        )
        span.end()
        properties = {**message.properties, **_carrier(span)}
        return message.model_copy(update={"properties": properties})

    def send(self, call: Call[Answer], send: Callable[[Call[Answer]], Answer]) -> Answer:
        """Send a request of a blocking client within its span."""
        with self._span(call) as sent:
            reply = send(sent.call)
            sent.note(reply)
            return reply

    async def send_async(
        self, call: Call[Answer], send: Callable[[Call[Answer]], Awaitable[Answer]]
    ) -> Answer:
        """Send a request of an asyncio client within its span."""
        with self._span(call) as sent:
            reply = await send(sent.call)
            sent.note(reply)
            return reply

    @contextmanager
    def _span(self, call: Call[Any]) -> Iterator[_Sent]:
        """Make the span of a request; only requests about messages have one."""
        if call.answer in (ProduceReply, BegunTransaction):
            spans = self._sending(call)
        elif issubclass(call.answer, ReceivedMessages | Pull):
            spans = self._receiving(call)
        elif call.answer is ReceiptResults and not call.path.endswith(":extend"):
            spans = self._settling(call)
        else:
            yield _Sent(call)
            return
        with spans as sent:
            yield sent

    @contextmanager
    def _sending(self, call: Call[Any]) -> Iterator[_Sent]:
        """The context of the span goes into the messages that have none; it links to the others."""
        body = call.json or {}
        messages: Sequence[Mapping[str, Any]] = body.get("messages", ())
        links = _links(each.get("properties", {}) for each in messages)
        is_created = bool(messages) and len(links) == len(messages)
        topic = body.get("topic") or _segment(call.path, 3)
        with self._current(
            f"send {topic}",
            SpanKind.CLIENT if is_created else SpanKind.PRODUCER,
            _attributes("send", "send", topic, count=len(messages)),
            links=links,
            context=Context() if is_created else None,
        ) as span:
            yield _Sent(
                _with_context(call, _carrier(span)), lambda reply: _note_places(span, reply)
            )

    @contextmanager
    def _receiving(self, call: Call[Any]) -> Iterator[_Sent]:
        """A receive has a span when it brought messages, to whose producers it links, or failed."""
        topics = list((call.json or {}).get("topics", ()))
        is_pull = call.answer is Pull
        topic = _segment(call.path, 3) if is_pull else topics[0] if len(topics) == 1 else None
        group = None if is_pull else _segment(call.path, 3).partition(":")[0]
        name, started = f"receive {topic or ''}".strip(), time.time_ns()

        def record(messages: Sequence[Message], failure: Exception | None = None) -> None:
            found = _attributes("receive", "receive", topic, group, count=len(messages))
            links = _links(each.properties for each in messages)
            span = self._tracer.start_span(
                name, kind=SpanKind.CLIENT, attributes=found, links=links, start_time=started
            )
            if failure is not None:
                _note_error(span, failure)
            span.end()

        try:
            yield _Sent(call, lambda reply: record(reply.messages) if reply.messages else None)
        except Exception as error:
            record((), error)
            raise

    @contextmanager
    def _settling(self, call: Call[Any]) -> Iterator[_Sent]:
        group, _, operation = _segment(call.path, 3).partition(":")
        count = len((call.json or {}).get("receipts", ()))
        found = _attributes(operation, "settle", None, group, count=count)
        with self._current(operation, SpanKind.CLIENT, found):
            yield _Sent(call)

    @contextmanager
    def _current(
        self, name: str, kind: SpanKind, attributes: Attributes, **options: Any
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, record_exception=False, **options
        ) as span:
            try:
                yield span
            except Exception as error:
                _note_error(span, error)
                raise


class Processing:
    """The spans of the messages that one consumer has given to the application."""

    def __init__(self, tracing: Tracing, group: str) -> None:
        self._tracing = tracing
        self._group = group
        self._spans: dict[str, Span] = {}

    def begin(self, message: LeasedMessage) -> Span:
        """Begin the span of a message."""
        span = self._spans[message.receipt] = self._tracing.begin_processing(message, self._group)
        return span

    def settle(self, receipt: str, what: Outcome | Release) -> None:
        """End the span of a message that was acknowledged, returned or released."""
        span = self._spans.pop(receipt, None)
        if span is None:
            return
        if isinstance(what, Release):
            span.set_attribute("error.type", "released")
        elif what.delay_level is not None:
            span.set_attribute("error.type", "nack")
            span.set_status(Status(StatusCode.ERROR, what.reason or "returned"))
        span.end()

    def end_lost(self, leases: Leases) -> None:
        """End the spans of messages whose lease is not held any more."""
        for receipt in list(self._spans):
            if receipt not in leases:
                self.settle(receipt, Release())


def _attributes(
    operation: str,
    kind: str,
    topic: str | None,
    group: str | None = None,
    *,
    count: int | None = None,
) -> Attributes:
    given = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": group,
        "messaging.batch.message_count": count,
    }
    return {name: value for name, value in given.items() if value is not None}


def _note_places(span: Span, reply: ProduceReply | BegunTransaction) -> None:
    places: Sequence[MessagePlace] = reply.messages if isinstance(reply, ProduceReply) else ()
    if len(places) == 1:
        span.set_attribute("messaging.message.id", places[0].offset_msg_id)
    if len({(each.waits_in, each.queue_id) for each in places}) == 1 and not places[0].waits_in:
        span.set_attribute("messaging.destination.partition.id", str(places[0].queue_id))


def _note_error(span: Span, error: Exception) -> None:
    name = error.type if isinstance(error, ProblemError) else type(error).__name__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _carrier(span: Span) -> dict[str, str]:
    """The trace context of a span as properties of a message."""
    found: dict[str, str] = {}
    _W3C.inject(found, trace.set_span_in_context(span))
    return found


def _with_context(call: Call[Any], carrier: Mapping[str, str]) -> Call[Any]:
    """Return the request with the context in its messages that have none, in all its attempts."""
    build = call.with_keys
    if call.json is None or not carrier:
        return call
    messages = [
        each
        if _PARENT in each.get("properties", {})
        else {**each, "properties": {**each.get("properties", {}), **carrier}}
        for each in call.json["messages"]
    ]
    return replace(
        call,
        json={**call.json, "messages": messages},
        with_keys=None if build is None else lambda shard: _with_context(build(shard), carrier),
    )


def _links(properties: Any) -> list[Link]:
    """Links to the spans that created messages with these properties."""
    contexts = [
        trace.get_current_span(_W3C.extract(each)).get_span_context()
        for each in properties
        if _PARENT in each
    ]
    return [Link(each) for each in contexts if each.is_valid]


def _source_of(message: Message) -> str:
    """The topic that a message was produced to; a retry comes from another one."""
    return message.source_topic if isinstance(message, LeasedMessage) else message.topic


def _segment(path: str, number: int) -> str:
    return unquote(path.split("/")[number])
