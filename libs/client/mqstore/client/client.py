"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self

import httpx
from httpx_sse import EventSource

from mqstore.client import lazy
from mqstore.client.attempts import Attempts
from mqstore.client.base_client import BaseClient
from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.methods import blocking, streaming, working
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Answer, Call
from mqstore.client.streams import Event, Place, Stream
from mqstore.wire.operation import RELAY

if TYPE_CHECKING:
    from mqstore.client.async_client import AsyncClient


class Client(BaseClient[httpx.Client]):
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
                self._note(call, found)
                return found
            time.sleep(pause_s)

    def _send_once(self, call: Call[Answer]) -> Answer:
        request = self._request(call)
        try:
            response = self._http.request(**request)
            if redirected := redirect(request, response):
                response = self._send_redirected(request, redirected)
        except httpx.HTTPError as error:
            raise unreachable(call, error) from error
        return answer(call, response)

    def _send_redirected(
        self, request: dict[str, Any], redirected: dict[str, Any]
    ) -> httpx.Response:
        """Send a request to the shard that is meant, or have it forwarded there.

        A shard's address may be known inside a cluster only. Then no later request is sent to one.
        """
        try:
            return self._http.request(**redirected)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            self._relay = {RELAY: "1"}
        headers = {**request["headers"], **self._relay}
        return self._http.request(**request | {"headers": headers})

    def stream(self, stream: Stream[Event]) -> Generator[Event, None, None]:
        """Yield the events of a stream, and reconnect when the connection is lost.

        The connection ends with the generator: when the loop is left, or by its ``close``. In a
        fork of the process that opened it, the generator raises ClientError.
        """
        place, home = Place(stream), HomeProcess("stream")
        while True:
            failure: ClientError | None = None
            try:
                with closing(self._connection(place)) as events:
                    for event in events:
                        yield event
                        home.require()
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

    def _asynchronous(self) -> AsyncClient:
        """Return an AsyncClient with the parameters of this client."""
        from mqstore.client.async_client import AsyncClient  # slow to import

        return AsyncClient(**self._parameters)

    def close(self) -> None:
        """End all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    produce = blocking(lazy.produce_calls.produce)
    produce_batch = blocking(lazy.produce_calls.produce_batch)
    create_topic = blocking(lazy.topic_calls.create_topic)
    topic = blocking(lazy.topic_calls.topic)
    topics = blocking(lazy.topic_calls.topics)
    change_topic = blocking(lazy.topic_calls.change_topic)
    delete_topic = blocking(lazy.topic_calls.delete_topic)
    groups = blocking(lazy.group_calls.groups)
    group = blocking(lazy.group_calls.group)
    put_group = blocking(lazy.group_calls.put_group)
    delete_group = blocking(lazy.group_calls.delete_group)
    offsets = blocking(lazy.group_calls.offsets)
    commit = blocking(lazy.group_calls.commit)
    reset_offsets = blocking(lazy.group_calls.reset_offsets)
    subscriptions = blocking(lazy.group_calls.subscriptions)
    subscribe = blocking(lazy.group_calls.subscribe)
    subscription = blocking(lazy.group_calls.subscription)
    unsubscribe = blocking(lazy.group_calls.unsubscribe)
    producer = working(lazy.producers.producer, lazy.producers.Producer)
    consumer = working(lazy.consumers.consumer, lazy.consumers.Consumer)
    ordered_consumer = working(lazy.ordered.ordered_consumer, lazy.ordered.OrderedConsumer)
    transactional_producer = working(
        lazy.transactional.transactional_producer, lazy.transactional.TransactionalProducer
    )
    receive = blocking(lazy.consumer_calls.receive)
    acknowledge = blocking(lazy.consumer_calls.acknowledge)
    give_back = blocking(lazy.consumer_calls.give_back)
    extend = blocking(lazy.consumer_calls.extend)
    join = blocking(lazy.consumer_calls.join)
    leave = blocking(lazy.consumer_calls.leave)
    members = blocking(lazy.consumer_calls.members)
    dead_letters = blocking(lazy.consumer_calls.dead_letters)
    resend_dead_letters = blocking(lazy.consumer_calls.resend_dead_letters)
    purge_dead_letters = blocking(lazy.consumer_calls.purge_dead_letters)
    store = blocking(lazy.store_calls.store)
    recovery = blocking(lazy.store_calls.recovery)
    delays = blocking(lazy.store_calls.delays)
    segments = blocking(lazy.store_calls.segments)
    retention = blocking(lazy.retention_calls.retention)
    run_retention = blocking(lazy.retention_calls.run_retention)
    flush = blocking(lazy.store_calls.flush)
    writes = blocking(lazy.store_calls.writes)
    put_writes = blocking(lazy.store_calls.put_writes)
    release_keys = blocking(lazy.store_calls.release_keys)
    store_findings = blocking(lazy.store_calls.store_findings)
    setting = blocking(lazy.store_calls.setting)
    settings = blocking(lazy.store_calls.settings)
    replication = blocking(lazy.store_calls.replication)
    promote = blocking(lazy.store_calls.promote)
    switch_over = blocking(lazy.store_calls.switch_over)
    quarantine = blocking(lazy.store_calls.quarantine)
    remove_quarantined = blocking(lazy.store_calls.remove_quarantined)
    operations = blocking(lazy.store_calls.operations)
    scrub = blocking(lazy.store_calls.scrub)
    run_scrub = blocking(lazy.store_calls.run_scrub)
    repair_log = blocking(lazy.store_calls.repair_log)
    archive = blocking(lazy.retention_calls.archive)
    put_archive = blocking(lazy.retention_calls.put_archive)
    end_archive = blocking(lazy.retention_calls.end_archive)
    begin_index_rebuild = blocking(lazy.rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = blocking(lazy.rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = blocking(lazy.rebuild_calls.plan_index_rebuild)
    send_index_part = blocking(lazy.rebuild_calls.send_index_part)
    publish_index_rebuild = blocking(lazy.rebuild_calls.publish_index_rebuild)
    end_index_rebuild = blocking(lazy.rebuild_calls.end_index_rebuild)
    index_rebuilds = blocking(lazy.rebuild_calls.index_rebuilds)
    expiry_report = blocking(lazy.retention_calls.expiry_report)
    put_expiry_report = blocking(lazy.retention_calls.put_expiry_report)
    backup_report = blocking(lazy.backup_calls.backup_report)
    put_backup_result = blocking(lazy.backup_calls.put_backup_result)
    pin = blocking(lazy.retention_calls.pin)
    pins = blocking(lazy.retention_calls.pins)
    put_pin = blocking(lazy.retention_calls.put_pin)
    remove_pin = blocking(lazy.retention_calls.remove_pin)
    access = blocking(lazy.lookup_calls.access)
    message = blocking(lazy.lookup_calls.message)
    messages_by_id = blocking(lazy.lookup_calls.messages_by_id)
    message_at = blocking(lazy.lookup_calls.message_at)
    message_body = blocking(lazy.lookup_calls.message_body)
    store_state = blocking(lazy.lookup_calls.store_state)
    log_files = blocking(lazy.lookup_calls.log_files)
    log_bytes = blocking(lazy.lookup_calls.log_bytes)
    messages_by_key = blocking(lazy.lookup_calls.messages_by_key)
    messages_by_time = blocking(lazy.lookup_calls.messages_by_time)
    queues = blocking(lazy.lookup_calls.queues)
    pull = blocking(lazy.lookup_calls.pull)
    offset_by_time = blocking(lazy.lookup_calls.offset_by_time)
    offsets_by_time = blocking(lazy.lookup_calls.offsets_by_time)
    trace = blocking(lazy.lag_calls.trace)
    traces = blocking(lazy.lag_calls.traces)
    lags = blocking(lazy.lag_calls.lags)
    findings = blocking(lazy.lag_calls.findings)
    lag = blocking(lazy.lag_calls.lag)
    health = blocking(lazy.store_calls.health)
    events = streaming(lazy.events.store_events)
    follow = streaming(lazy.events.topic_events)
    begin = blocking(lazy.transaction_calls.begin)
    commit_transaction = blocking(lazy.transaction_calls.commit_transaction)
    rollback_transaction = blocking(lazy.transaction_calls.rollback_transaction)
    resolve_transaction = blocking(lazy.transaction_calls.resolve_transaction)
    transaction = blocking(lazy.transaction_calls.transaction)
    transactions = blocking(lazy.transaction_calls.transactions)
    take_checks = blocking(lazy.transaction_calls.take_checks)
    register_producer = blocking(lazy.transaction_calls.register_producer)
    remove_producer = blocking(lazy.transaction_calls.remove_producer)
    producers = blocking(lazy.transaction_calls.producers)
