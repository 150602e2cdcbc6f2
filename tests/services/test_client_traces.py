"""OpenTelemetry spans of the client: one trace from the producer to the consumer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mqstore.client import AsyncClient, Client, ConsumedMessage, NewMessage, ProblemError
from mqstore.client.otel import Tracing
from tests.services.service_processes import ServicePair

PRODUCER, CONSUMER, CLIENT = SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT
PARENT: Final = "traceparent"


class Traced:
    """A client whose spans are kept."""

    def __init__(self, pair: ServicePair) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider)
        self.tracer = provider.get_tracer("application")
        self.urls = pair.writer.url, pair.query.url
        self.client = Client(*self.urls, tracing=self.tracing)

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans with a name, without the topic."""
        found = self.exporter.get_finished_spans()
        return [each for each in found if each.name.partition(" ")[0] == name]


@pytest.fixture
def traced(pair: ServicePair) -> Iterator[Traced]:
    made = Traced(pair)
    with made.client:
        yield made


def trace_ids(spans: Sequence[ReadableSpan]) -> list[int]:
    return [context_of(each).trace_id for each in spans]


def context_of(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def linked(span: ReadableSpan) -> set[int]:
    return {int(each.context.span_id) for each in span.links}


def attributes(span: ReadableSpan) -> dict[str, object]:
    return {
        name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()
    }


def test_one_trace_leads_from_the_send_to_the_processing(traced: Traced) -> None:
    client = traced.client
    client.create_topic("direct", queues=1)
    with traced.tracer.start_as_current_span("order"):
        (placed,) = client.produce("direct", NewMessage(body="one")).messages
    (message,) = client.receive("readers", "direct").messages
    with traced.tracing.processing(message, "readers"):
        client.acknowledge("readers", message)

    (send,), (process,) = traced.spans("send"), traced.spans("process")
    (receive,), (ack,) = traced.spans("receive"), traced.spans("ack")
    assert [each.kind for each in (send, receive, process, ack)] == [
        *(PRODUCER, CLIENT, CONSUMER, CLIENT)
    ]
    (order,) = traced.spans("order")
    assert set(trace_ids([order, send, process, ack])) == {context_of(order).trace_id}
    assert process.parent is not None
    assert process.parent.span_id == context_of(send).span_id
    assert linked(receive) == {context_of(send).span_id}
    assert attributes(send) == {
        "system": "mqstore",
        "operation.name": "send",
        "operation.type": "send",
        "destination.name": "direct",
        "destination.partition.id": "0",
        "batch.message_count": 1,
        "message.id": placed.offset_msg_id,
    }
    assert attributes(process)["consumer.group.name"] == "readers"
    assert attributes(ack)["operation.type"] == "settle"
    assert client.pull("direct", 0).messages[0].properties[PARENT] == message.properties[PARENT]


def test_a_context_that_a_message_has_is_kept(traced: Traced) -> None:
    client = traced.client
    client.create_topic("given", queues=1)
    own = {PARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    client.produce("given", [NewMessage(body="a", properties=own), NewMessage(body="b")])
    first, second = client.pull("given", 0).messages
    assert {name: first.properties[name] for name in own} == own
    (send,) = traced.spans("send")
    assert f"{context_of(send).span_id:016x}" in second.properties[PARENT]
    with traced.tracing.processing(first) as span:
        assert span.get_span_context().trace_id == 0x0AF7651916CD43DD8448EB211C80319C
        assert span.get_span_context().trace_state.get("a") == "b"


def test_a_producer_and_a_consumer_make_the_same_trace(traced: Traced) -> None:
    traced.client.create_topic("worked", queues=1)
    with (
        traced.client.producer("worked") as producer,
        traced.tracer.start_as_current_span("order"),
    ):
        for number in range(3):
            producer.send(str(number))
    current: list[int] = []

    def handle(message: ConsumedMessage) -> None:
        current.append(trace.get_current_span().get_span_context().trace_id)
        if len(current) == 3:
            consumer.stop()
            raise ValueError("no stock")

    with traced.client.consumer("workers", "worked") as consumer:
        consumer.run(handle)

    (order,) = traced.spans("order")
    created, processed = traced.spans("create"), traced.spans("process")
    assert set(trace_ids([order, *created, *processed])) == {*current}
    assert len(created) == len(processed) == 3
    assert set().union(*map(linked, traced.spans("send"))) == {
        context_of(each).span_id for each in created
    }
    assert {each.kind for each in traced.spans("send")} == {CLIENT}
    ended = [(each.status.status_code, each.status.description) for each in processed]
    assert sorted(ended, key=str)[0] == (StatusCode.ERROR, "ValueError: no stock")
    assert [each for each, _ in ended].count(StatusCode.ERROR) == 1
    assert traced.spans("nack")
    assert attributes(processed[-1])["error.type"] == "nack"


def test_the_asyncio_client_makes_the_same_spans(traced: Traced) -> None:
    async def work() -> None:
        async with AsyncClient(*traced.urls, tracing=traced.tracing) as client:
            await client.create_topic("async", queues=1)
            async with client.producer("async") as producer:
                await (await producer.send("one"))
            async with client.consumer("async-workers", "async") as consumer:
                async for message in consumer:
                    with traced.tracing.processing(message):
                        message.ack()
                    consumer.stop()

    asyncio.run(work())
    names = {each.name for each in traced.exporter.get_finished_spans()}
    assert names == {"create async", "send async", "receive async", "process async", "ack"}
    assert len(set(trace_ids([*traced.spans("create"), *traced.spans("process")]))) == 1


def test_a_refused_request_is_an_error_of_its_span(traced: Traced) -> None:
    with pytest.raises(ProblemError):
        traced.client.produce("no such topic", NewMessage())
    (send,) = traced.spans("send")
    assert send.status.status_code is StatusCode.ERROR
    assert (send.attributes or {})["error.type"] == "topic-invalid"
    assert traced.client.topics()
    assert traced.exporter.get_finished_spans() == (send,)


def test_a_client_without_traces_imports_none_of_it(tmp_path: Path) -> None:
    code = "import sys, mqstore.client; print([m for m in sys.modules if 'opentel' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
