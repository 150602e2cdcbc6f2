"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx
from httpx_sse import EventSource

from mqstore.client import lazy
from mqstore.client.attempts import Attempts
from mqstore.client.base_client import BaseClient
from mqstore.client.calls import Calls
from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.methods import working_async
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Answer, Asynchronous, Call
from mqstore.client.streams import Event, Place, Stream
from mqstore.wire.operation import RELAY


class AsyncClient(BaseClient[httpx.AsyncClient], Calls, Asynchronous):
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    producer = working_async(lambda: (lazy.producers.producer, lazy.producers.AsyncProducer))
    consumer = working_async(lambda: (lazy.consumers.consumer, lazy.consumers.AsyncConsumer))
    ordered_consumer = working_async(
        lambda: (lazy.ordered.ordered_consumer, lazy.ordered.AsyncOrderedConsumer)
    )
    transactional_producer = working_async(
        lambda: (
            lazy.transactional.transactional_producer,
            lazy.transactional.AsyncTransactionalProducer,
        )
    )
