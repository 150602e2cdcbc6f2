"""Addresses, headers and parameters of requests, for both clients. Does no input or output."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import httpx

from mqstore.client.conditions import ReadConditions
from mqstore.client.environment import token_of
from mqstore.client.requests import Answer, Call
from mqstore.client.streams import HEARTBEAT_S, Place, Stream
from mqstore.client.tls import default_context, make_tls_context
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

if TYPE_CHECKING:
    from mqstore.client.otel import Tracing

TIMEOUT_S: Final = 10.0
_HEADERS: Final = {"accept-encoding": "identity"}
"""Services compress a reply on request, which costs more time than a network near them saves."""
POLL_SLACK_S: Final = 5.0
"""Longest time for the reply after the wait of a request."""


Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)


class BaseClient(ReadConditions, Generic[Http]):
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
        self._parameters: dict[str, Any] = {
            "writer_url": writer_url,
            "query_url": query_url,
            "coordinator_url": coordinator_url,
            "token": token,
            "tls": tls,
            "timeout_s": timeout_s,
            "shard": shard,
            "patience_s": patience_s,
            "tracing": tracing,
        }
        """Those of another client like this one."""
        self._urls = {target: url.rstrip("/") for target, url in urls.items()}
        self._timeout_s = timeout_s
        self._tls = tls or default_context(self._urls.values())
        self._http_by_process: dict[int, Http] = {}
        """Those of processes that this one is a fork of are kept, never closed: they share their
        connections with the processes that use them."""
        self._token = token
        self._shard = shard
        self._patience_s = patience_s
        self.tracing = tracing
        self._relay: dict[str, str] = {}
        """Header that has requests forwarded, once the address of a single shard has failed."""
        self._up: int | None = None
        """The shard that stored the latest messages."""

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Make a client of the services, with the token and the authorities that environment
        variables name: MQSTORE_WRITER_URL, MQSTORE_QUERY_URL, MQSTORE_COORDINATOR_URL,
        MQSTORE_TOKEN or MQSTORE_TOKEN_FILE, MQSTORE_CA.

        ``environment`` is by default that of the process. ``options`` are other parameters of the
        client, such as ``tracing``. A token file is read again for each request. Raises OSError for
        a file of authorities that cannot be used.
        """
        if environment is None:
            environment = os.environ
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
    def _http(self) -> Http:
        """The connections of the current process: a fork of another one opens its own."""
        pid = os.getpid()
        found = self._http_by_process.get(pid)
        if found is None:
            http = self._http_type(verify=self._tls, headers=_HEADERS)
            found = self._http_by_process.setdefault(pid, http)
        return found

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
            "headers": {**self._headers, **self._relay, **call.headers},
            "timeout": httpx.Timeout(self._timeout_s, read=self._read_timeout_s(call)),
        }

    def _read_timeout_s(self, call: Call[Any]) -> float:
        """Return the seconds without a byte of the reply after which a request fails. A service
        replies at once when a wait is over, so one that has stopped is not waited for longer."""
        if not call.wait_s:
            return self._timeout_s
        return call.wait_s + min(self._timeout_s, POLL_SLACK_S)

    def _note(self, call: Call[Answer], found: Answer) -> None:
        """Remember the shard that stored messages."""
        stored = None if call.stored_on is None else call.stored_on(found)
        if stored is not None:
            self._up = stored

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
