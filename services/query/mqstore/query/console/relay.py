"""Requests of the console to store-writer and to the coordinator, which query forwards: a page has
one origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import httpx
from starlette.requests import Request
from starlette.responses import Response

from mqstore.query.local_writer import LocalWriter
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.cold_routes import requested_shard
from mqstore.service.forwarding import ForwardedRequest, StreamedResponse, read_client
from mqstore.service.http import BODY_METHODS
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards
from mqstore.wire.operation import Operation, Role, Target, all_operations

_SAME_SITE: Final = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` in requests of the console, and of the address bar."""
METRICS_TARGETS: Final = ("writer", "query")
_NAMES: Final = {Target.WRITER: "store-writer", Target.COORDINATOR: "transaction-coordinator"}


class ConsoleRelay:
    """Forwards operations of store-writer and the coordinator, and the metrics of all shards.

    A request keeps its token. Only documented operations pass, after the check of their role.
    """

    def __init__(
        self,
        api: Api,
        shards: Shards,
        local: LocalWriter,
        token: Callable[[], str | None],
        coordinator_url: str | None,
    ) -> None:
        """``token`` returns the system token that proves the client's address.

        ``coordinator_url`` is None where query knows no coordinator.
        """
        self._auth = api.auth
        self._own_metrics = api.render_metrics
        self._shards = shards
        self._local = local
        self._token = token
        self._coordinator_url = coordinator_url

    async def forward_to_writer(self, request: Request) -> Response:
        """Forward a request to the store-writer of this shard.

        If it cannot be connected, and the request names no shard, another one replies. Raises
        Problem.
        """
        forwarded = await self._admit(request, Target.WRITER)
        others = () if "shard" in request.query_params else self._shards.members.others
        return await self._send(forwarded, [None, *(each.writer_url for each in others)])

    async def forward_to_coordinator(self, request: Request) -> Response:
        """Forward a request to the transaction coordinator. Raises Problem."""
        forwarded = await self._admit(request, Target.COORDINATOR)
        url = self._coordinator_url
        if url is None:
            raise Problem(
                problems.NOT_FOUND,
                "query knows no transaction coordinator: set coordinatorUrl of query to its"
                " address, and restart query",
            )
        try:
            answer = await self._local.stream(forwarded, url)
        except httpx.HTTPError as error:
            raise Problem(
                problems.COORDINATOR_NOT_READY,
                f"the transaction coordinator at {url} does not reply: {_text_of(error)}",
            ) from error
        assert answer is not None  # it has an address
        return StreamedResponse(answer)

    async def _admit(self, request: Request, target: Target) -> ForwardedRequest:
        """Check the role of a request, and return the request to forward. Raises Problem."""
        _require_same_site(request)
        path = "/" + request.path_params["path"]
        operation = find_operation(request.method, path, target)
        self._auth.check(request.scope["headers"], operation.role)
        content = await request.body() if request.method in BODY_METHODS else b""
        scope = {**request.scope, "path": path}
        client = read_client(scope, self._auth)
        return ForwardedRequest.of(scope, None, content).with_client(client, self._token())

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of a service of a shard. Raises Problem."""
        self._auth.check(request.scope["headers"], Role.CONSUME)
        target = request.path_params["target"]
        if target not in METRICS_TARGETS:
            raise Problem(problems.NOT_FOUND, f"no metrics of {target[:20]!r}: writer or query")
        shard = self._shard_of(request)
        if shard == self._shards.own and target == "query":
            return await self._own_metrics()
        url = None
        if shard != self._shards.own:
            entry = self._shards.members.entries[shard]
            url = entry.writer_url if target == "writer" else entry.query_url
        scope = {**request.scope, "path": "/metrics", "query_string": b""}
        return await self._send(ForwardedRequest.of(scope, None), [url])

    def _shard_of(self, request: Request) -> int:
        """Return the shard that a request names; by default this one. Raises Problem (404)."""
        shard = requested_shard(request)
        if shard is None:
            return self._shards.own
        if shard not in self._shards.members.numbers:
            raise Problem(problems.SHARD_UNKNOWN, f"unknown shard {shard}")
        return shard

    async def _send(self, forwarded: ForwardedRequest, urls: list[str | None]) -> Response:
        why: Exception | None = None
        for url in urls:
            try:
                answer = await self._local.stream(forwarded, url)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = error  # nothing was sent
            except httpx.HTTPError as error:
                raise self._unreachable(error) from error
            else:
                if answer is not None:
                    return StreamedResponse(answer)
        raise self._unreachable(why) from why

    def _unreachable(self, error: Exception | None) -> Problem:
        own = self._shards.own
        why = "it is not running" if error is None else _text_of(error)
        return Problem(
            problems.SHARD_UNREACHABLE,
            f"store-writer of shard {own} does not reply: {why}",
            extra={"shard": own},
        )


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def find_operation(method: str, path: str, target: Target) -> Operation[Any]:
    """Return the operation of a service that a request is of. Raises Problem (404)."""
    for operation, pattern in _relayed(target):
        if operation.method == method and pattern.fullmatch(path):
            return operation
    raise Problem(
        problems.NOT_FOUND,
        f"{method} {path[:200]} is no operation of {_NAMES[target]} that the console may send",
    )


@cache
def _relayed(target: Target) -> tuple[tuple[Operation[Any], re.Pattern[str]], ...]:
    return tuple(_patterns(target))


def _patterns(target: Target) -> Iterator[tuple[Operation[Any], re.Pattern[str]]]:
    for operation in all_operations():
        is_internal = operation.path.startswith("/v1/internal/") or operation.role is Role.SYSTEM
        if target in operation.targets and not is_internal:
            path = re.escape(operation.path)
            yield operation, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", path))


def _require_same_site(request: Request) -> None:
    """Raise Problem (403) for a request of another site's page."""
    if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        raise Problem(problems.FORBIDDEN, "only pages of the console may send requests to /ui/")
