"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self

import httpx
from httpx_sse import EventSource

from mqstore.client import lazy
from mqstore.client.attempts import Attempts
from mqstore.client.base_client import BaseClient
from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.methods import asynchronous, streaming_asynchronously, working_asynchronously
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Answer, Call
from mqstore.client.streams import Event, Place, Stream
from mqstore.wire.operation import RELAY


class AsyncClient(BaseClient[httpx.AsyncClient]):
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
                self._note(call, found)
                return found
            await asyncio.sleep(pause_s)

    async def _send_once(self, call: Call[Answer]) -> Answer:
        request = self._request(call)
        try:
            response = await self._http.request(**request)
            if redirected := redirect(request, response):
                response = await self._send_redirected(request, redirected)
        except httpx.HTTPError as error:
            raise unreachable(call, error) from error
        return answer(call, response)

    async def _send_redirected(
        self, request: dict[str, Any], redirected: dict[str, Any]
    ) -> httpx.Response:
        """Send a request to the shard that is meant, or have it forwarded there.

        A shard's address may be known inside a cluster only. Then no later request is sent to one.
        """
        try:
            return await self._http.request(**redirected)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            self._relay = {RELAY: "1"}
        headers = {**request["headers"], **self._relay}
        return await self._http.request(**request | {"headers": headers})

    async def stream(self, stream: Stream[Event]) -> AsyncGenerator[Event, None]:
        """Yield the events of a stream, and reconnect when the connection is lost.

        Wrap it in ``contextlib.aclosing`` if the loop may be left early.
        """
        place, home = Place(stream), HomeProcess("stream")
        while True:
            failure: ClientError | None = None
            try:
                async with contextlib.aclosing(self._connection(place)) as events:
                    async for event in events:
                        yield event
                        home.require()
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

    produce = asynchronous(lazy.produce_calls.produce)
    produce_batch = asynchronous(lazy.produce_calls.produce_batch)
    create_topic = asynchronous(lazy.topic_calls.create_topic)
    topic = asynchronous(lazy.topic_calls.topic)
    topics = asynchronous(lazy.topic_calls.topics)
    change_topic = asynchronous(lazy.topic_calls.change_topic)
    delete_topic = asynchronous(lazy.topic_calls.delete_topic)
    groups = asynchronous(lazy.group_calls.groups)
    group = asynchronous(lazy.group_calls.group)
    put_group = asynchronous(lazy.group_calls.put_group)
    delete_group = asynchronous(lazy.group_calls.delete_group)
    offsets = asynchronous(lazy.group_calls.offsets)
    commit = asynchronous(lazy.group_calls.commit)
    reset_offsets = asynchronous(lazy.group_calls.reset_offsets)
    subscriptions = asynchronous(lazy.group_calls.subscriptions)
    subscribe = asynchronous(lazy.group_calls.subscribe)
    subscription = asynchronous(lazy.group_calls.subscription)
    unsubscribe = asynchronous(lazy.group_calls.unsubscribe)
    producer = working_asynchronously(lazy.producers.producer, lazy.producers.AsyncProducer)
    consumer = working_asynchronously(lazy.consumers.consumer, lazy.consumers.AsyncConsumer)
    ordered_consumer = working_asynchronously(
        lazy.ordered.ordered_consumer, lazy.ordered.AsyncOrderedConsumer
    )
    transactional_producer = working_asynchronously(
        lazy.transactional.transactional_producer, lazy.transactional.AsyncTransactionalProducer
    )
    receive = asynchronous(lazy.consumer_calls.receive)
    acknowledge = asynchronous(lazy.consumer_calls.acknowledge)
    give_back = asynchronous(lazy.consumer_calls.give_back)
    extend = asynchronous(lazy.consumer_calls.extend)
    join = asynchronous(lazy.consumer_calls.join)
    leave = asynchronous(lazy.consumer_calls.leave)
    members = asynchronous(lazy.consumer_calls.members)
    dead_letters = asynchronous(lazy.consumer_calls.dead_letters)
    resend_dead_letters = asynchronous(lazy.consumer_calls.resend_dead_letters)
    purge_dead_letters = asynchronous(lazy.consumer_calls.purge_dead_letters)
    store = asynchronous(lazy.store_calls.store)
    recovery = asynchronous(lazy.store_calls.recovery)
    delays = asynchronous(lazy.store_calls.delays)
    segments = asynchronous(lazy.store_calls.segments)
    retention = asynchronous(lazy.retention_calls.retention)
    run_retention = asynchronous(lazy.retention_calls.run_retention)
    flush = asynchronous(lazy.store_calls.flush)
    writes = asynchronous(lazy.store_calls.writes)
    put_writes = asynchronous(lazy.store_calls.put_writes)
    release_keys = asynchronous(lazy.store_calls.release_keys)
    store_findings = asynchronous(lazy.store_calls.store_findings)
    setting = asynchronous(lazy.store_calls.setting)
    settings = asynchronous(lazy.store_calls.settings)
    replication = asynchronous(lazy.store_calls.replication)
    promote = asynchronous(lazy.store_calls.promote)
    switch_over = asynchronous(lazy.store_calls.switch_over)
    quarantine = asynchronous(lazy.store_calls.quarantine)
    remove_quarantined = asynchronous(lazy.store_calls.remove_quarantined)
    operations = asynchronous(lazy.store_calls.operations)
    scrub = asynchronous(lazy.store_calls.scrub)
    run_scrub = asynchronous(lazy.store_calls.run_scrub)
    repair_log = asynchronous(lazy.store_calls.repair_log)
    archive = asynchronous(lazy.retention_calls.archive)
    put_archive = asynchronous(lazy.retention_calls.put_archive)
    end_archive = asynchronous(lazy.retention_calls.end_archive)
    begin_index_rebuild = asynchronous(lazy.rebuild_calls.begin_index_rebuild)
    renew_index_rebuild = asynchronous(lazy.rebuild_calls.renew_index_rebuild)
    plan_index_rebuild = asynchronous(lazy.rebuild_calls.plan_index_rebuild)
    send_index_part = asynchronous(lazy.rebuild_calls.send_index_part)
    publish_index_rebuild = asynchronous(lazy.rebuild_calls.publish_index_rebuild)
    end_index_rebuild = asynchronous(lazy.rebuild_calls.end_index_rebuild)
    index_rebuilds = asynchronous(lazy.rebuild_calls.index_rebuilds)
    expiry_report = asynchronous(lazy.retention_calls.expiry_report)
    put_expiry_report = asynchronous(lazy.retention_calls.put_expiry_report)
    backup_report = asynchronous(lazy.backup_calls.backup_report)
    put_backup_result = asynchronous(lazy.backup_calls.put_backup_result)
    pin = asynchronous(lazy.retention_calls.pin)
    pins = asynchronous(lazy.retention_calls.pins)
    put_pin = asynchronous(lazy.retention_calls.put_pin)
    remove_pin = asynchronous(lazy.retention_calls.remove_pin)
    access = asynchronous(lazy.lookup_calls.access)
    message = asynchronous(lazy.lookup_calls.message)
    messages_by_id = asynchronous(lazy.lookup_calls.messages_by_id)
    message_at = asynchronous(lazy.lookup_calls.message_at)
    message_body = asynchronous(lazy.lookup_calls.message_body)
    store_state = asynchronous(lazy.lookup_calls.store_state)
    log_files = asynchronous(lazy.lookup_calls.log_files)
    log_bytes = asynchronous(lazy.lookup_calls.log_bytes)
    messages_by_key = asynchronous(lazy.lookup_calls.messages_by_key)
    messages_by_time = asynchronous(lazy.lookup_calls.messages_by_time)
    queues = asynchronous(lazy.lookup_calls.queues)
    pull = asynchronous(lazy.lookup_calls.pull)
    offset_by_time = asynchronous(lazy.lookup_calls.offset_by_time)
    offsets_by_time = asynchronous(lazy.lookup_calls.offsets_by_time)
    trace = asynchronous(lazy.lag_calls.trace)
    traces = asynchronous(lazy.lag_calls.traces)
    lags = asynchronous(lazy.lag_calls.lags)
    findings = asynchronous(lazy.lag_calls.findings)
    lag = asynchronous(lazy.lag_calls.lag)
    health = asynchronous(lazy.store_calls.health)
    events = streaming_asynchronously(lazy.events.store_events)
    follow = streaming_asynchronously(lazy.events.topic_events)
    begin = asynchronous(lazy.transaction_calls.begin)
    commit_transaction = asynchronous(lazy.transaction_calls.commit_transaction)
    rollback_transaction = asynchronous(lazy.transaction_calls.rollback_transaction)
    resolve_transaction = asynchronous(lazy.transaction_calls.resolve_transaction)
    transaction = asynchronous(lazy.transaction_calls.transaction)
    transactions = asynchronous(lazy.transaction_calls.transactions)
    take_checks = asynchronous(lazy.transaction_calls.take_checks)
    register_producer = asynchronous(lazy.transaction_calls.register_producer)
    remove_producer = asynchronous(lazy.transaction_calls.remove_producer)
    producers = asynchronous(lazy.transaction_calls.producers)
