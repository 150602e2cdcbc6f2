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
from mqstore.client.calls import Calls
from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.methods import working
from mqstore.client.replies import answer, problem_error, redirect, unreachable
from mqstore.client.requests import Answer, Blocking, Call
from mqstore.client.streams import Event, Place, Stream
from mqstore.wire.operation import RELAY

if TYPE_CHECKING:
    from mqstore.client.async_client import AsyncClient


class Client(BaseClient[httpx.Client], Calls, Blocking):
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

    producer = working(lambda: (lazy.producers.producer, lazy.producers.Producer))
    consumer = working(lambda: (lazy.consumers.consumer, lazy.consumers.Consumer))
    ordered_consumer = working(
        lambda: (lazy.ordered.ordered_consumer, lazy.ordered.OrderedConsumer)
    )
    transactional_producer = working(
        lambda: (
            lazy.transactional.transactional_producer,
            lazy.transactional.TransactionalProducer,
        )
    )
