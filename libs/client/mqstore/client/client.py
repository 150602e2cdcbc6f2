"""The blocking and the asyncio client: one set of calls, two ways to send them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import httpx
from httpx_sse import EventSource
from pydantic import BaseModel

from mqstore.client import calls, consumer_calls, lookup_calls, rebuild_calls, transaction_calls
from mqstore.client.attempts import Attempts
from mqstore.client.conditions import ReadConditions
from mqstore.client.consumers import AsyncConsumer, Consumer, consumer
from mqstore.client.environment import token_of
from mqstore.client.errors import ClientError
from mqstore.client.events import (
    HEARTBEAT_S,
    Event,
    Place,
    Stream,
    store_events,
    topic_events,
)
from mqstore.client.methods import (
    asynchronous,
    blocking,
    streaming,
    streaming_asynchronously,
    working,
    working_asynchronously,
)
from mqstore.client.ordered import AsyncOrderedConsumer, OrderedConsumer, ordered_consumer
from mqstore.client.producers import AsyncProducer, Producer, producer
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Call
from mqstore.client.tls import default_context, make_tls_context
from mqstore.client.transactional import (
    AsyncTransactionalProducer,
    TransactionalProducer,
    transactional_producer,
)
from mqstore.wire.environment import (
    CA_VARIABLE,
    COORDINATOR_URL,
    COORDINATOR_URL_VARIABLE,
    QUERY_URL,
    QUERY_URL_VARIABLE,
    WRITER_URL,
    WRITER_URL_VARIABLE,
)
from mqstore.wire.operation import Target
from mqstore.wire.produce import ProduceReply

if TYPE_CHECKING:
    from mqstore.client.otel import Tracing

Answer = TypeVar("Answer", bound=BaseModel)

TIMEOUT_S: Final = 10.0


Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)


class _Base(ReadConditions, Generic[Http]):
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
        self._http: Http = self._http_type(verify=tls or default_context(self._urls.values()))
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
        authorization = {} if token is None else {"authorization": f"Bearer {token}"}
        return {**authorization, **self._conditions}

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

    produce = blocking(calls.produce)
    produce_batch = blocking(calls.produce_batch)
    create_topic = blocking(calls.create_topic)
    topic = blocking(calls.topic)
    topics = blocking(calls.topics)
    change_topic = blocking(calls.change_topic)
    delete_topic = blocking(calls.delete_topic)
    groups = blocking(calls.groups)
    group = blocking(calls.group)
    put_group = blocking(calls.put_group)
    delete_group = blocking(calls.delete_group)
    offsets = blocking(calls.offsets)
    commit = blocking(calls.commit)
    reset_offsets = blocking(calls.reset_offsets)
    subscriptions = blocking(calls.subscriptions)
    subscribe = blocking(calls.subscribe)
    subscription = blocking(calls.subscription)
    unsubscribe = blocking(calls.unsubscribe)
    producer = working(producer, Producer)
    consumer = working(consumer, Consumer)
    ordered_consumer = working(ordered_consumer, OrderedConsumer)
    transactional_producer = working(transactional_producer, TransactionalProducer)
    receive = blocking(consumer_calls.receive)
    acknowledge = blocking(consumer_calls.acknowledge)
    give_back = blocking(consumer_calls.give_back)
    extend = blocking(consumer_calls.extend)
    join = blocking(consumer_calls.join)
    leave = blocking(consumer_calls.leave)
    members = blocking(consumer_calls.members)
    dead_letters = blocking(consumer_calls.dead_letters)
    resend_dead_letters = blocking(consumer_calls.resend_dead_letters)
    purge_dead_letters = blocking(consumer_calls.purge_dead_letters)
    store = blocking(calls.store)
    recovery = blocking(calls.recovery)
    delays = blocking(calls.delays)
    segments = blocking(calls.segments)
    retention = blocking(calls.retention)
    run_retention = blocking(calls.run_retention)
    flush = blocking(calls.flush)
    writes = blocking(calls.writes)
    put_writes = blocking(calls.put_writes)
    setting = blocking(calls.setting)
    settings = blocking(calls.settings)
    replication = blocking(calls.replication)
    promote = blocking(calls.promote)
    switch_over = blocking(calls.switch_over)
    quarantine = blocking(calls.quarantine)
    remove_quarantined = blocking(calls.remove_quarantined)
    operations = blocking(calls.operations)
    scrub = blocking(calls.scrub)
    run_scrub = blocking(calls.run_scrub)
    repair_log = blocking(calls.repair_log)
    archive = blocking(calls.archive)
    put_archive = blocking(calls.put_archive)
    end_archive = blocking(calls.end_archive)
    begin_index_rebuild = blocking(rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = blocking(rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = blocking(rebuild_calls.plan_index_rebuild)
    send_index_part = blocking(rebuild_calls.send_index_part)
    publish_index_rebuild = blocking(rebuild_calls.publish_index_rebuild)
    end_index_rebuild = blocking(rebuild_calls.end_index_rebuild)
    index_rebuilds = blocking(rebuild_calls.index_rebuilds)
    expiry_report = blocking(calls.expiry_report)
    put_expiry_report = blocking(calls.put_expiry_report)
    backup_report = blocking(calls.backup_report)
    put_backup_result = blocking(calls.put_backup_result)
    pin = blocking(calls.pin)
    pins = blocking(calls.pins)
    put_pin = blocking(calls.put_pin)
    remove_pin = blocking(calls.remove_pin)
    access = blocking(lookup_calls.access)
    message = blocking(lookup_calls.message)
    messages_by_id = blocking(lookup_calls.messages_by_id)
    message_at = blocking(lookup_calls.message_at)
    message_body = blocking(lookup_calls.message_body)
    store_state = blocking(lookup_calls.store_state)
    log_files = blocking(lookup_calls.log_files)
    log_bytes = blocking(lookup_calls.log_bytes)
    messages_by_key = blocking(lookup_calls.messages_by_key)
    messages_by_time = blocking(lookup_calls.messages_by_time)
    queues = blocking(lookup_calls.queues)
    pull = blocking(lookup_calls.pull)
    offset_by_time = blocking(lookup_calls.offset_by_time)
    offsets_by_time = blocking(lookup_calls.offsets_by_time)
    trace = blocking(lookup_calls.trace)
    traces = blocking(lookup_calls.traces)
    lags = blocking(lookup_calls.lags)
    lag = blocking(lookup_calls.lag)
    health = blocking(calls.health)
    events = streaming(store_events)
    follow = streaming(topic_events)
    begin = blocking(transaction_calls.begin)
    commit_transaction = blocking(transaction_calls.commit_transaction)
    rollback_transaction = blocking(transaction_calls.rollback_transaction)
    resolve_transaction = blocking(transaction_calls.resolve_transaction)
    transaction = blocking(transaction_calls.transaction)
    transactions = blocking(transaction_calls.transactions)
    take_checks = blocking(transaction_calls.take_checks)
    register_producer = blocking(transaction_calls.register_producer)
    remove_producer = blocking(transaction_calls.remove_producer)
    producers = blocking(transaction_calls.producers)


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

    produce = asynchronous(calls.produce)
    produce_batch = asynchronous(calls.produce_batch)
    create_topic = asynchronous(calls.create_topic)
    topic = asynchronous(calls.topic)
    topics = asynchronous(calls.topics)
    change_topic = asynchronous(calls.change_topic)
    delete_topic = asynchronous(calls.delete_topic)
    groups = asynchronous(calls.groups)
    group = asynchronous(calls.group)
    put_group = asynchronous(calls.put_group)
    delete_group = asynchronous(calls.delete_group)
    offsets = asynchronous(calls.offsets)
    commit = asynchronous(calls.commit)
    reset_offsets = asynchronous(calls.reset_offsets)
    subscriptions = asynchronous(calls.subscriptions)
    subscribe = asynchronous(calls.subscribe)
    subscription = asynchronous(calls.subscription)
    unsubscribe = asynchronous(calls.unsubscribe)
    producer = working_asynchronously(producer, AsyncProducer)
    consumer = working_asynchronously(consumer, AsyncConsumer)
    ordered_consumer = working_asynchronously(ordered_consumer, AsyncOrderedConsumer)
    transactional_producer = working_asynchronously(
        transactional_producer, AsyncTransactionalProducer
    )
    receive = asynchronous(consumer_calls.receive)
    acknowledge = asynchronous(consumer_calls.acknowledge)
    give_back = asynchronous(consumer_calls.give_back)
    extend = asynchronous(consumer_calls.extend)
    join = asynchronous(consumer_calls.join)
    leave = asynchronous(consumer_calls.leave)
    members = asynchronous(consumer_calls.members)
    dead_letters = asynchronous(consumer_calls.dead_letters)
    resend_dead_letters = asynchronous(consumer_calls.resend_dead_letters)
    purge_dead_letters = asynchronous(consumer_calls.purge_dead_letters)
    store = asynchronous(calls.store)
    recovery = asynchronous(calls.recovery)
    delays = asynchronous(calls.delays)
    segments = asynchronous(calls.segments)
    retention = asynchronous(calls.retention)
    run_retention = asynchronous(calls.run_retention)
    flush = asynchronous(calls.flush)
    writes = asynchronous(calls.writes)
    put_writes = asynchronous(calls.put_writes)
    setting = asynchronous(calls.setting)
    settings = asynchronous(calls.settings)
    replication = asynchronous(calls.replication)
    promote = asynchronous(calls.promote)
    switch_over = asynchronous(calls.switch_over)
    quarantine = asynchronous(calls.quarantine)
    remove_quarantined = asynchronous(calls.remove_quarantined)
    operations = asynchronous(calls.operations)
    scrub = asynchronous(calls.scrub)
    run_scrub = asynchronous(calls.run_scrub)
    repair_log = asynchronous(calls.repair_log)
    archive = asynchronous(calls.archive)
    put_archive = asynchronous(calls.put_archive)
    end_archive = asynchronous(calls.end_archive)
    begin_index_rebuild = asynchronous(rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = asynchronous(rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = asynchronous(rebuild_calls.plan_index_rebuild)
    send_index_part = asynchronous(rebuild_calls.send_index_part)
    publish_index_rebuild = asynchronous(rebuild_calls.publish_index_rebuild)
    end_index_rebuild = asynchronous(rebuild_calls.end_index_rebuild)
    index_rebuilds = asynchronous(rebuild_calls.index_rebuilds)
    expiry_report = asynchronous(calls.expiry_report)
    put_expiry_report = asynchronous(calls.put_expiry_report)
    backup_report = asynchronous(calls.backup_report)
    put_backup_result = asynchronous(calls.put_backup_result)
    pin = asynchronous(calls.pin)
    pins = asynchronous(calls.pins)
    put_pin = asynchronous(calls.put_pin)
    remove_pin = asynchronous(calls.remove_pin)
    access = asynchronous(lookup_calls.access)
    message = asynchronous(lookup_calls.message)
    messages_by_id = asynchronous(lookup_calls.messages_by_id)
    message_at = asynchronous(lookup_calls.message_at)
    message_body = asynchronous(lookup_calls.message_body)
    store_state = asynchronous(lookup_calls.store_state)
    log_files = asynchronous(lookup_calls.log_files)
    log_bytes = asynchronous(lookup_calls.log_bytes)
    messages_by_key = asynchronous(lookup_calls.messages_by_key)
    messages_by_time = asynchronous(lookup_calls.messages_by_time)
    queues = asynchronous(lookup_calls.queues)
    pull = asynchronous(lookup_calls.pull)
    offset_by_time = asynchronous(lookup_calls.offset_by_time)
    offsets_by_time = asynchronous(lookup_calls.offsets_by_time)
    trace = asynchronous(lookup_calls.trace)
    traces = asynchronous(lookup_calls.traces)
    lags = asynchronous(lookup_calls.lags)
    lag = asynchronous(lookup_calls.lag)
    health = asynchronous(calls.health)
    events = streaming_asynchronously(store_events)
    follow = streaming_asynchronously(topic_events)
    begin = asynchronous(transaction_calls.begin)
    commit_transaction = asynchronous(transaction_calls.commit_transaction)
    rollback_transaction = asynchronous(transaction_calls.rollback_transaction)
    resolve_transaction = asynchronous(transaction_calls.resolve_transaction)
    transaction = asynchronous(transaction_calls.transaction)
    transactions = asynchronous(transaction_calls.transactions)
    take_checks = asynchronous(transaction_calls.take_checks)
    register_producer = asynchronous(transaction_calls.register_producer)
    remove_producer = asynchronous(transaction_calls.remove_producer)
    producers = asynchronous(transaction_calls.producers)
