"""The blocking and the asyncio client: one set of calls, two ways to send them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

import httpx
from httpx_sse import EventSource
from pydantic import BaseModel

from mqstore.client import calls, consumer_calls, lookup_calls, rebuild_calls, transaction_calls
from mqstore.client.attempts import Attempts
from mqstore.client.consumers import AsyncConsumer, Consumer, consumer
from mqstore.client.environment import (
    CA_VARIABLE,
    COORDINATOR_URL_VARIABLE,
    QUERY_URL_VARIABLE,
    WRITER_URL_VARIABLE,
    token_of,
)
from mqstore.client.errors import ClientError
from mqstore.client.events import (
    HEARTBEAT_S,
    Event,
    Place,
    Stream,
    store_events,
    topic_events,
)
from mqstore.client.ordered import AsyncOrderedConsumer, OrderedConsumer, ordered_consumer
from mqstore.client.producers import AsyncProducer, Producer, producer
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Call
from mqstore.client.tls import make_tls_context, public_authorities
from mqstore.client.transactional import (
    AsyncTransactionalProducer,
    TransactionalProducer,
    transactional_producer,
)
from mqstore.wire.operation import Target
from mqstore.wire.produce import ProduceReply

if TYPE_CHECKING:
    from mqstore.client.otel import Tracing

P = ParamSpec("P")
Answer = TypeVar("Answer", bound=BaseModel)
Method = TypeVar("Method", bound=Callable[..., Any])
Spec = TypeVar("Spec")
Worker = TypeVar("Worker")

WRITER_URL: Final = "http://127.0.0.1:8081"
QUERY_URL: Final = "http://127.0.0.1:8082"
COORDINATOR_URL: Final = "http://127.0.0.1:8083"
TIMEOUT_S: Final = 10.0


Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)


class _Base(Generic[Http]):
    """The parts of both clients that do no input or output: addresses, headers, parameters."""

    _http_type: type[Http]

    def __init__(
        self,
        writer_url: str = WRITER_URL,
        query_url: str = QUERY_URL,
        *,
        coordinator_url: str = COORDINATOR_URL,
        token: str | Callable[[], str | None] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        shard: int | None = None,
        patience_s: float = 0.0,
        tracing: Tracing | None = None,
    ) -> None:
        """``token`` is a bearer token, or a function that returns one for each request. ``tls``
        verifies the servers of https addresses (see ``make_tls_context``); by default the system's
        certificate authorities do. ``shard`` is added to each call that names no shard; without it
        the shard that the address leads to replies for all shards. A call is retried for
        ``patience_s`` seconds where that is safe: it may be repeated, or no attempt can have taken
        effect. ``tracing`` makes spans of requests about messages (``mqstore.client.otel``).
        """
        urls = {
            Target.WRITER: writer_url,
            Target.QUERY: query_url,
            Target.COORDINATOR: coordinator_url,
        }
        self._asynchronous = partial(
            AsyncClient,
            writer_url,
            query_url,
            coordinator_url=coordinator_url,
            token=token,
            tls=tls,
            timeout_s=timeout_s,
            shard=shard,
            patience_s=patience_s,
            tracing=tracing,
        )
        """Makes an AsyncClient as this client is."""
        self._urls = {target: url.rstrip("/") for target, url in urls.items()}
        self._timeout_s = timeout_s
        self._http: Http = self._http_type(verify=tls or public_authorities(trust_env=True))
        self._token = token
        self._shard = shard
        self._patience_s = patience_s
        self.tracing = tracing
        self._up: int | None = None
        """The shard that stored the latest messages."""

    @classmethod
    def from_env(cls, environment: Mapping[str, str] = os.environ, **options: Any) -> Self:
        """Make a client of the services, with the token and the authorities that environment
        variables name: MQSTORE_WRITER_URL, MQSTORE_QUERY_URL, MQSTORE_COORDINATOR_URL,
        MQSTORE_TOKEN or MQSTORE_TOKEN_FILE, MQSTORE_CA.

        ``options`` are other parameters of the client, such as ``tracing``. A token file is read
        again for each request. Raises OSError for a file of authorities that
        cannot be used.
        """
        ca = environment.get(CA_VARIABLE)
        return cls(
            environment.get(WRITER_URL_VARIABLE) or WRITER_URL,
            environment.get(QUERY_URL_VARIABLE) or QUERY_URL,
            coordinator_url=environment.get(COORDINATOR_URL_VARIABLE) or COORDINATOR_URL,
            token=token_of(environment),
            tls=make_tls_context(ca) if ca else None,
            **options,
        )

    @property
    def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {} if token is None else {"authorization": f"Bearer {token}"}

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": self._urls[call.target] + call.path,
            "params": self._params(call),
            "json": call.json,
            "content": call.content,
            "headers": {**self._headers, **call.headers},
            "timeout": self._timeout_s + call.wait_s,
        }

    def _note(self, answer: object) -> None:
        """Remember the shard that stored messages."""
        if isinstance(answer, ProduceReply) and answer.messages:
            self._up = answer.messages[-1].shard

    def _params(self, call: Call[Any] | Stream[Any]) -> dict[str, Any]:
        """Return the query parameters, with the client's shard for operations on shards."""
        is_of_shards = call.target is not Target.COORDINATOR and call.path.startswith("/v1/")
        if self._shard is None or not is_of_shards:
            return dict(call.params)
        return {"shard": self._shard, **call.params}

    def _stream_request(self, place: Place[Any]) -> dict[str, Any]:
        stream = place.stream
        return {
            "method": "GET",
            "url": self._urls[stream.target] + stream.path,
            "params": self._params(stream),
            "headers": self._headers | place.headers(),
            "timeout": httpx.Timeout(self._timeout_s, read=self._timeout_s + HEARTBEAT_S),
        }


def _describe(
    method: Method, build: Callable[..., Any], result: Callable[..., object] | None = None
) -> Method:
    """Give a method the name, docstring and signature of its call, for ``help`` and ``inspect``.

    ``result`` is the class that it returns; None: that of the call's reply.
    """
    signature = inspect.signature(build)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    reply = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    if result is not None:
        reply = result.__name__
    elif not inspect.iscoroutinefunction(method) and signature.return_annotation.startswith(
        "Stream"
    ):
        reply = str(inspect.signature(method).return_annotation).replace("Event", reply, 1)
    described = signature.replace(
        parameters=[this, *signature.parameters.values()], return_annotation=reply
    )
    method.__signature__ = described  # type: ignore[attr-defined] # inspect reads it
    method.__name__, method.__doc__ = build.__name__, build.__doc__
    method.__qualname__ = build.__qualname__
    return method


def _blocking(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[Client, P], Answer]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return self.send(build(*args, **kwargs))

    return _describe(method, build)


def _asynchronous(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[Answer]]:
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return await self.send(build(*args, **kwargs))

    return _describe(method, build)


def _working(
    build: Callable[P, Spec], worker: Callable[[Callable[[], AsyncClient], Spec], Worker]
) -> Callable[Concatenate[Client, P], Worker]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
        return worker(self._asynchronous, build(*args, **kwargs))

    return _describe(method, build, worker)


def _working_asynchronously(
    build: Callable[P, Spec],
    worker: Callable[[AsyncClient, Spec], Worker],
) -> Callable[Concatenate[AsyncClient, P], Worker]:
    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
        return worker(self, build(*args, **kwargs))

    return _describe(method, build, worker)


def _streaming(
    build: Callable[P, Stream[Event]],
) -> Callable[Concatenate[Client, P], Generator[Event, None, None]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Event, None, None]:
        return self.stream(build(*args, **kwargs))

    return _describe(method, build)


def _streaming_asynchronously(
    build: Callable[P, Stream[Event]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[Event, None]]:
    def method(
        self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[Event, None]:
        return self.stream(build(*args, **kwargs))

    return _describe(method, build)


class Client(_Base[httpx.Client]):
    """A blocking client of store-writer, query and coordinator. Thread-safe.

    Methods raise ProblemError for an error reply, and Unreachable without a complete reply.
    """

    _http_type = httpx.Client

    def send(self, call: Call[Answer]) -> Answer:
        """Send a call, with retries where they are safe, and return the reply."""
        if self.tracing is not None:
            return self.tracing.send(call, self._send)
        return self._send(call)

    def _send(self, call: Call[Answer]) -> Answer:
        attempts = Attempts(call, self._up, self._patience_s)
        while True:
            try:
                found = self._send_once(attempts.call)
            except ClientError as error:
                pause_s = attempts.pause_s(error)
            else:
                self._note(found)
                return found
            time.sleep(pause_s)

    def _send_once(self, call: Call[Answer]) -> Answer:
        request = self._request(call)
        try:
            response = self._http.request(**request)
            if redirected := redirect(request, response):
                response = self._http.request(**redirected)
        except httpx.HTTPError as error:
            raise unreachable(call, error) from error
        return answer(call, response)

    def stream(self, stream: Stream[Event]) -> Generator[Event, None, None]:
        """Yield the events of a stream, and reconnect when the connection is lost.

        The connection ends with the generator: when the loop is left, or by its ``close``.
        """
        place = Place(stream)
        while True:
            failure: ClientError | None = None
            try:
                yield from self._connection(place)
            except ClientError as error:
                failure = error
            pause_s = place.pause_s(failure)
            if pause_s is None:
                return
            time.sleep(pause_s)

    def _connection(self, place: Place[Event]) -> Generator[Event, None, None]:
        try:
            with self._http.stream(**self._stream_request(place)) as response:
                if not response.is_success:
                    response.read()
                    raise problem_error(response)
                for sent in EventSource(response).iter_sse():
                    event = place.take(sent)
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(place.stream, error) from error

    def close(self) -> None:
        """End all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    produce = _blocking(calls.produce)
    produce_batch = _blocking(calls.produce_batch)
    create_topic = _blocking(calls.create_topic)
    topic = _blocking(calls.topic)
    topics = _blocking(calls.topics)
    change_topic = _blocking(calls.change_topic)
    delete_topic = _blocking(calls.delete_topic)
    groups = _blocking(calls.groups)
    group = _blocking(calls.group)
    put_group = _blocking(calls.put_group)
    delete_group = _blocking(calls.delete_group)
    offsets = _blocking(calls.offsets)
    commit = _blocking(calls.commit)
    reset_offsets = _blocking(calls.reset_offsets)
    subscriptions = _blocking(calls.subscriptions)
    subscribe = _blocking(calls.subscribe)
    subscription = _blocking(calls.subscription)
    unsubscribe = _blocking(calls.unsubscribe)
    producer = _working(producer, Producer)
    consumer = _working(consumer, Consumer)
    ordered_consumer = _working(ordered_consumer, OrderedConsumer)
    transactional_producer = _working(transactional_producer, TransactionalProducer)
    receive = _blocking(consumer_calls.receive)
    acknowledge = _blocking(consumer_calls.acknowledge)
    give_back = _blocking(consumer_calls.give_back)
    extend = _blocking(consumer_calls.extend)
    join = _blocking(consumer_calls.join)
    leave = _blocking(consumer_calls.leave)
    members = _blocking(consumer_calls.members)
    dead_letters = _blocking(consumer_calls.dead_letters)
    resend_dead_letters = _blocking(consumer_calls.resend_dead_letters)
    purge_dead_letters = _blocking(consumer_calls.purge_dead_letters)
    store = _blocking(calls.store)
    recovery = _blocking(calls.recovery)
    delays = _blocking(calls.delays)
    segments = _blocking(calls.segments)
    retention = _blocking(calls.retention)
    run_retention = _blocking(calls.run_retention)
    flush = _blocking(calls.flush)
    writes = _blocking(calls.writes)
    put_writes = _blocking(calls.put_writes)
    quarantine = _blocking(calls.quarantine)
    remove_quarantined = _blocking(calls.remove_quarantined)
    operations = _blocking(calls.operations)
    scrub = _blocking(calls.scrub)
    run_scrub = _blocking(calls.run_scrub)
    repair_log = _blocking(calls.repair_log)
    archive = _blocking(calls.archive)
    put_archive = _blocking(calls.put_archive)
    end_archive = _blocking(calls.end_archive)
    begin_index_rebuild = _blocking(rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = _blocking(rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = _blocking(rebuild_calls.plan_index_rebuild)
    send_index_part = _blocking(rebuild_calls.send_index_part)
    publish_index_rebuild = _blocking(rebuild_calls.publish_index_rebuild)
    end_index_rebuild = _blocking(rebuild_calls.end_index_rebuild)
    index_rebuilds = _blocking(rebuild_calls.index_rebuilds)
    expiry_report = _blocking(calls.expiry_report)
    put_expiry_report = _blocking(calls.put_expiry_report)
    pin = _blocking(calls.pin)
    pins = _blocking(calls.pins)
    put_pin = _blocking(calls.put_pin)
    remove_pin = _blocking(calls.remove_pin)
    message = _blocking(lookup_calls.message)
    message_at = _blocking(lookup_calls.message_at)
    message_body = _blocking(lookup_calls.message_body)
    store_state = _blocking(lookup_calls.store_state)
    log_files = _blocking(lookup_calls.log_files)
    log_bytes = _blocking(lookup_calls.log_bytes)
    messages_by_key = _blocking(lookup_calls.messages_by_key)
    messages_by_time = _blocking(lookup_calls.messages_by_time)
    queues = _blocking(lookup_calls.queues)
    pull = _blocking(lookup_calls.pull)
    offset_by_time = _blocking(lookup_calls.offset_by_time)
    trace = _blocking(lookup_calls.trace)
    traces = _blocking(lookup_calls.traces)
    lags = _blocking(lookup_calls.lags)
    lag = _blocking(lookup_calls.lag)
    health = _blocking(calls.health)
    events = _streaming(store_events)
    follow = _streaming(topic_events)
    begin = _blocking(transaction_calls.begin)
    commit_transaction = _blocking(transaction_calls.commit_transaction)
    rollback_transaction = _blocking(transaction_calls.rollback_transaction)
    resolve_transaction = _blocking(transaction_calls.resolve_transaction)
    transaction = _blocking(transaction_calls.transaction)
    transactions = _blocking(transaction_calls.transactions)
    take_checks = _blocking(transaction_calls.take_checks)
    register_producer = _blocking(transaction_calls.register_producer)
    remove_producer = _blocking(transaction_calls.remove_producer)
    producers = _blocking(transaction_calls.producers)


class AsyncClient(_Base[httpx.AsyncClient]):
    """A client for asyncio, with the methods of ``Client``. Use it on one event loop only."""

    _http_type = httpx.AsyncClient

    async def send(self, call: Call[Answer]) -> Answer:
        """Send a call, with retries where they are safe, and return the reply."""
        if self.tracing is not None:
            return await self.tracing.send_async(call, self._send)
        return await self._send(call)

    async def _send(self, call: Call[Answer]) -> Answer:
        attempts = Attempts(call, self._up, self._patience_s)
        while True:
            try:
                found = await self._send_once(attempts.call)
            except ClientError as error:
                pause_s = attempts.pause_s(error)
            else:
                self._note(found)
                return found
            await asyncio.sleep(pause_s)

    async def _send_once(self, call: Call[Answer]) -> Answer:
        request = self._request(call)
        try:
            response = await self._http.request(**request)
            if redirected := redirect(request, response):
                response = await self._http.request(**redirected)
        except httpx.HTTPError as error:
            raise unreachable(call, error) from error
        return answer(call, response)

    async def stream(self, stream: Stream[Event]) -> AsyncGenerator[Event, None]:
        """Yield the events of a stream, and reconnect when the connection is lost.

        Wrap it in ``contextlib.aclosing`` if the loop may be left early.
        """
        place = Place(stream)
        while True:
            failure: ClientError | None = None
            try:
                async with contextlib.aclosing(self._connection(place)) as events:
                    async for event in events:
                        yield event
            except ClientError as error:
                failure = error
            pause_s = place.pause_s(failure)
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    async def _connection(self, place: Place[Event]) -> AsyncGenerator[Event, None]:
        try:
            async with self._http.stream(**self._stream_request(place)) as response:
                if not response.is_success:
                    await response.aread()
                    raise problem_error(response)
                async for sent in EventSource(response).aiter_sse():
                    event = place.take(sent)
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(place.stream, error) from error

    async def close(self) -> None:
        """End all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    produce = _asynchronous(calls.produce)
    produce_batch = _asynchronous(calls.produce_batch)
    create_topic = _asynchronous(calls.create_topic)
    topic = _asynchronous(calls.topic)
    topics = _asynchronous(calls.topics)
    change_topic = _asynchronous(calls.change_topic)
    delete_topic = _asynchronous(calls.delete_topic)
    groups = _asynchronous(calls.groups)
    group = _asynchronous(calls.group)
    put_group = _asynchronous(calls.put_group)
    delete_group = _asynchronous(calls.delete_group)
    offsets = _asynchronous(calls.offsets)
    commit = _asynchronous(calls.commit)
    reset_offsets = _asynchronous(calls.reset_offsets)
    subscriptions = _asynchronous(calls.subscriptions)
    subscribe = _asynchronous(calls.subscribe)
    subscription = _asynchronous(calls.subscription)
    unsubscribe = _asynchronous(calls.unsubscribe)
    producer = _working_asynchronously(producer, AsyncProducer)
    consumer = _working_asynchronously(consumer, AsyncConsumer)
    ordered_consumer = _working_asynchronously(ordered_consumer, AsyncOrderedConsumer)
    transactional_producer = _working_asynchronously(
        transactional_producer, AsyncTransactionalProducer
    )
    receive = _asynchronous(consumer_calls.receive)
    acknowledge = _asynchronous(consumer_calls.acknowledge)
    give_back = _asynchronous(consumer_calls.give_back)
    extend = _asynchronous(consumer_calls.extend)
    join = _asynchronous(consumer_calls.join)
    leave = _asynchronous(consumer_calls.leave)
    members = _asynchronous(consumer_calls.members)
    dead_letters = _asynchronous(consumer_calls.dead_letters)
    resend_dead_letters = _asynchronous(consumer_calls.resend_dead_letters)
    purge_dead_letters = _asynchronous(consumer_calls.purge_dead_letters)
    store = _asynchronous(calls.store)
    recovery = _asynchronous(calls.recovery)
    delays = _asynchronous(calls.delays)
    segments = _asynchronous(calls.segments)
    retention = _asynchronous(calls.retention)
    run_retention = _asynchronous(calls.run_retention)
    flush = _asynchronous(calls.flush)
    writes = _asynchronous(calls.writes)
    put_writes = _asynchronous(calls.put_writes)
    quarantine = _asynchronous(calls.quarantine)
    remove_quarantined = _asynchronous(calls.remove_quarantined)
    operations = _asynchronous(calls.operations)
    scrub = _asynchronous(calls.scrub)
    run_scrub = _asynchronous(calls.run_scrub)
    repair_log = _asynchronous(calls.repair_log)
    archive = _asynchronous(calls.archive)
    put_archive = _asynchronous(calls.put_archive)
    end_archive = _asynchronous(calls.end_archive)
    begin_index_rebuild = _asynchronous(rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = _asynchronous(rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = _asynchronous(rebuild_calls.plan_index_rebuild)
    send_index_part = _asynchronous(rebuild_calls.send_index_part)
    publish_index_rebuild = _asynchronous(rebuild_calls.publish_index_rebuild)
    end_index_rebuild = _asynchronous(rebuild_calls.end_index_rebuild)
    index_rebuilds = _asynchronous(rebuild_calls.index_rebuilds)
    expiry_report = _asynchronous(calls.expiry_report)
    put_expiry_report = _asynchronous(calls.put_expiry_report)
    pin = _asynchronous(calls.pin)
    pins = _asynchronous(calls.pins)
    put_pin = _asynchronous(calls.put_pin)
    remove_pin = _asynchronous(calls.remove_pin)
    message = _asynchronous(lookup_calls.message)
    message_at = _asynchronous(lookup_calls.message_at)
    message_body = _asynchronous(lookup_calls.message_body)
    store_state = _asynchronous(lookup_calls.store_state)
    log_files = _asynchronous(lookup_calls.log_files)
    log_bytes = _asynchronous(lookup_calls.log_bytes)
    messages_by_key = _asynchronous(lookup_calls.messages_by_key)
    messages_by_time = _asynchronous(lookup_calls.messages_by_time)
    queues = _asynchronous(lookup_calls.queues)
    pull = _asynchronous(lookup_calls.pull)
    offset_by_time = _asynchronous(lookup_calls.offset_by_time)
    trace = _asynchronous(lookup_calls.trace)
    traces = _asynchronous(lookup_calls.traces)
    lags = _asynchronous(lookup_calls.lags)
    lag = _asynchronous(lookup_calls.lag)
    health = _asynchronous(calls.health)
    events = _streaming_asynchronously(store_events)
    follow = _streaming_asynchronously(topic_events)
    begin = _asynchronous(transaction_calls.begin)
    commit_transaction = _asynchronous(transaction_calls.commit_transaction)
    rollback_transaction = _asynchronous(transaction_calls.rollback_transaction)
    resolve_transaction = _asynchronous(transaction_calls.resolve_transaction)
    transaction = _asynchronous(transaction_calls.transaction)
    transactions = _asynchronous(transaction_calls.transactions)
    take_checks = _asynchronous(transaction_calls.take_checks)
    register_producer = _asynchronous(transaction_calls.register_producer)
    remove_producer = _asynchronous(transaction_calls.remove_producer)
    producers = _asynchronous(transaction_calls.producers)
