"""Requests to other shards: each shard accepts requests for all shards.

A request for one shard is forwarded to it. A request for all shards is fanned out to all at one
time; the reply names the shards that are missing in it. A forwarded request (header
``x-mqstore-forwarded``) is served by this shard alone, so that no request is forwarded twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec
from starlette.requests import Request
from starlette.types import Scope

from mqstore.client.tls import public_authorities
from mqstore.service import problems
from mqstore.service.forwarding import (
    FORWARDED,
    ForwardedRequest,
    RelayedResponse,
    StreamedResponse,
    reply_of,
    was_forwarded,
)
from mqstore.service.health import Phase
from mqstore.service.http import BODY_METHODS, Reply, problem_of
from mqstore.service.joining import Joining
from mqstore.service.membership import Membership, ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.relay_connections import (
    CONNECT_TIMEOUT_S,
    NotSent,
    RelayConnections,
    RelayedReply,
    RelayError,
)
from mqstore.service.settings import Settings
from mqstore.service.structs import struct_of
from mqstore.service.upstream import UpstreamTls
from mqstore.storage.errors import StorageError
from mqstore.wire import shards as wire

REQUESTS_MAX: Final = 1_024
"""Requests to other shards in progress at one time."""
REPLIES_SIZE_MAX: Final = 128 << 20
"""Bytes of other shards' replies that are held at one time, over all requests."""
RELAY_TIMEOUT_S: Final = 65.0
"""Seconds after which a forwarded request fails: longer than the longest poll."""
RELOAD_INTERVAL_S: Final = 1.0

LocalReply = Callable[[], Awaitable[bytes]]
"""Computes this shard's reply."""
ParameterOverrides = Callable[[int], Mapping[str, Any]]
"""Returns the parameters of a shard that replace the client's; a value None removes one."""


_ShardsView: Final = struct_of(wire.Shards)


@dataclass(slots=True)
class ShardReplies:
    """The replies of all shards to one request; each shard is in one of the three fields."""

    answers: dict[int, bytes] = field(default_factory=dict)
    """Bodies of the successful replies."""
    refusals: dict[int, Problem] = field(default_factory=dict)
    """Problems of the shards that found nothing (404)."""
    missing: dict[int, str] = field(default_factory=dict)
    """Reasons why shards have no reply."""

    @property
    def is_complete(self) -> bool:
        """Whether all shards replied, and each that found nothing searched everything."""
        return not self.missing and all(
            each.extra.get("complete", True) for each in self.refusals.values()
        )

    def view(self) -> wire.Shards:
        """Return the member ``shards`` of a reply: shards requested, shards missing, and why."""
        requested = sorted({*self.answers, *self.refusals, *self.missing})
        why = {str(number): self.missing[number] for number in sorted(self.missing)}
        missing = tuple(sorted(self.missing))
        return _ShardsView(requested=tuple(requested), missing=missing, why=why)

    def require_reply(self) -> None:
        """Raise Problem when no shard replied with success."""
        if self.answers:
            return
        if self.refusals:
            found = self.refusals[min(self.refusals)]
        else:
            found = Problem(problems.SHARD_UNREACHABLE, "no shard answers")
        if not self.is_complete:
            found.extra["complete"] = False
        if self.missing:
            found.extra["shards"] = self.view()
        raise found


class ShardHealth(msgspec.Struct, rename="camel"):
    """A service's report of its health (``Health``)."""

    status: str = ""
    shards: frozenset[int] | None = None
    """The numbers in its list of shards; None in an early release."""
    key_owners: dict[str, Any] | None = None
    """The record of the shards that own keys; None in an earlier release, and in query."""

    @property
    def is_ready(self) -> bool:
        """Whether all requests are served."""
        return self.status == Phase.READY


class _ReplyTooLarge(RelayError):
    """The replies of other shards exceed REPLIES_SIZE_MAX together."""


class Shards:
    """Sends requests to the same service of the other shards. Used on the event loop only."""

    def __init__(self, settings: Settings, url_of: Callable[[ShardEntry], str]) -> None:
        """``url_of`` returns the address of the service in an entry of the list.

        Raises ConfigurationError for an invalid list or invalid certificates.
        """
        self.members = Membership(settings.shards_file, settings.shard)
        self.own = settings.shard
        self._url_of = url_of
        self._timeout_s = settings.shard_timeout_s
        self._tls = None if settings.shards_file is None else UpstreamTls.of(settings)
        self.joining = Joining(self.members, self._fetch_list)
        self.first_health: ShardHealth | None = None
        """The latest report of the first shard of the list; None: it is this one, or no reply."""
        self.on_check: Callable[[], Awaitable[None]] | None = None
        """Called each second, after the list and ``first_health`` were read."""
        self._watching: asyncio.Task[None] | None = None
        self._in_progress = 0
        self._held = 0
        self._connections: dict[str, RelayConnections] = {}

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        """For replies that are streamed, and for reports of health."""
        return httpx.AsyncClient(
            verify=self._trusted(),
            timeout=httpx.Timeout(RELAY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    def _trusted(self) -> ssl.SSLContext:
        return self._tls.context if self._tls else public_authorities(trust_env=False)

    def _connections_to(self, url: str) -> RelayConnections:
        """The connections for whole replies of a service. Raises ValueError for no address."""
        found = self._connections.get(url)
        if found is None:
            found = self._connections[url] = RelayConnections(url, self._trusted, REQUESTS_MAX)
        return found

    async def _close_unlisted(self) -> None:
        listed = {self._url_of(each) for each in self.members.entries.values()}
        for url in self._connections.keys() - listed:
            await self._connections.pop(url).close()

    def start(self) -> None:
        """Reload the list and the certificates when they change, and check ``joining``."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching, and close the connections."""
        if self._watching is not None:
            self._watching.cancel()
        if "_http" in vars(self):
            await self._http.aclose()
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    async def _watch(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(RELOAD_INTERVAL_S)

    async def check(self) -> None:
        """Read changed files, and the lists of other shards as far as they matter."""
        self.members.reload_if_changed()
        await self._close_unlisted()
        if self._tls is not None:
            self._tls.reload_if_changed()
        self.first_health = None if self.is_first else await self.health_of(self.first)
        await self.joining.check()
        if self.on_check is not None:
            await self.on_check()

    @property
    def is_first(self) -> bool:
        """Whether this shard is the first one of the list, or the only one."""
        members = self.members
        return members.alone or (members.lists_own and self.own == members.numbers[0])

    @property
    def first(self) -> ShardEntry:
        """The first shard of the list, which is another one."""
        return self.members.others[0]

    @property
    def lists_agree(self) -> bool:
        """Whether the first shard's list is known to be the same as this shard's.

        A new shard takes part only after all others list it. So a number that both lists lack is
        of no shard, and another one may be of a shard that the list here does not have yet.
        """
        found = self.first_health
        return self.is_first or (
            found is not None and found.shards == frozenset(self.members.entries)
        )

    async def health_of(self, entry: ShardEntry) -> ShardHealth | None:
        """Fetch the report of another shard's service of this kind; None without a reply."""
        return await self._fetch_health(self._url_of(entry))

    async def _fetch_list(self, url: str) -> frozenset[int] | None:
        """Fetch the list of a service, as ``joining.FetchList``; an early release has none."""
        found = await self._fetch_health(url)
        return None if found is None else found.shards

    async def _fetch_health(self, url: str) -> ShardHealth | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._http.get(f"{url.rstrip('/')}/healthz/ready")
            return msgspec.json.decode(answer.content, type=ShardHealth)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError):
            return None

    # the shard of a request -----------------------------------------------------------------

    def fans_out(self, scope: Scope) -> bool:
        """Return whether a request is for all shards: it names none and was not forwarded."""
        return not self.members.alone and not _names_a_shard(scope) and not was_forwarded(scope)

    def require_shard(self, scope: Scope) -> None:
        """Raise Problem (400) if a request that only one shard can serve names none of several."""
        if self.fans_out(scope):
            numbers = self.members.numbers
            raise Problem(
                problems.SHARD_NEEDED,
                "a queue belongs to one shard: name it with ?shard=; "
                f"the shards are {', '.join(map(str, numbers))}",
                extra={"shards": numbers},
            )

    def find_remote(self, shard: int | None, scope: Scope) -> ShardEntry | None:
        """Return the shard to forward a request to; None if this shard serves it.

        Raises Problem: 404 for an unknown shard, or 503 while lists may differ, 421 for a request
        that was forwarded here.
        """
        if shard is None or shard == self.own:
            return None
        entry = self.members.entries.get(shard)
        if entry is None:
            self.require_lists(shard)
            known = ", ".join(map(str, self.members.numbers))
            raise Problem(
                problems.SHARD_UNKNOWN,
                f"unknown shard {shard}; the shards are {known}",
                extra={"shards": self.members.numbers},
            )
        if was_forwarded(scope):
            raise self.misdirected(entry)
        return entry

    def require_lists(self, shard: int) -> None:
        """Raise Problem (503) if another list may have a shard that is not in the list here."""
        if not self.lists_agree:
            raise Problem(
                problems.SHARD_UNREACHABLE,
                f"shard {shard} is not in the list of shard {self.own}, which may be about to "
                "change; try again",
                extra={"shard": shard, "sent": False},
            )

    def misdirected(self, entry: ShardEntry) -> Problem:
        """Return the problem (421) that names the shard to send the request to."""
        place = self.place_of(entry.shard)
        return Problem(
            problems.WRONG_SHARD,
            f"this is shard {self.own}; shard {entry.shard} is at {place['url']}",
            extra=place,
        )

    def place_of(self, shard: int) -> dict[str, Any]:
        """Return number and address of another shard, as members of a problem."""
        return {"shard": shard, "url": self._url_of(self.members.entries[shard])}

    # one other shard ------------------------------------------------------------------------

    async def relay(self, entry: ShardEntry, request: Request) -> None:
        """Forward a request to another shard.

        Always raises: RelayedResponse, which streams the shard's response, or Problem.
        """
        forwarded = ForwardedRequest.of(request.scope, str(self.own), await _content(request))
        with self._counted():
            try:
                built = self._http.build_request(**forwarded.arguments(self._url_of(entry)))
                answer = await self._http.send(built, stream=True)
            except httpx.HTTPError as error:
                raise _unreachable(entry, error) from error
        raise RelayedResponse(StreamedResponse(answer))

    def forwarded(self, scope: Scope, content: bytes) -> ForwardedRequest:
        """Return a request as this shard forwards it, with another body."""
        return ForwardedRequest.of(scope, str(self.own), content)

    async def reply(self, entry: ShardEntry, forwarded: ForwardedRequest) -> Reply:
        """Forward a request of a hot route, and return the whole reply. Raises Problem."""
        with self._counted(), self._holding() as hold:
            try:
                return reply_of(await self._whole(entry, forwarded, hold))
            except (RelayError, ValueError) as error:
                raise _unreachable(entry, error) from error

    # all of them ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def fan_out(
        self,
        request: Request,
        own: LocalReply,
        *,
        changed: ParameterOverrides = lambda _: {},
        target: str | None = None,
        skip: Container[int] = (),
    ) -> AsyncIterator[ShardReplies]:
        """Send a request to all shards but ``skip`` at one time. The context holds the replies.

        ``own`` computes this shard's reply. ``changed`` overrides parameters by shard; ``target``
        replaces the request's path and query. Raises Problem for a request that every shard would
        reject.
        """
        forwarded = ForwardedRequest.of(request.scope, str(self.own), await _content(request))
        given = request.query_params.multi_items() if target is None else []
        path = forwarded.target.partition("?")[0] if target is None else target
        requests = {
            each.shard: _with(forwarded, path, given, changed(each.shard))
            for each in self.members.others
            if each.shard not in skip
        }
        async with self.spread(requests, None if self.own in skip else own) as spread:
            yield spread

    @contextlib.asynccontextmanager
    async def spread(
        self, requests: Mapping[int, ForwardedRequest], own: LocalReply | None
    ) -> AsyncIterator[ShardReplies]:
        """Send a request to each of some other shards at one time. The context holds the replies.

        ``own`` computes this shard's reply, if it is one of them. Raises as ``fan_out``.
        """
        spread = ShardReplies()
        with self._holding() as hold:
            tasks = [
                asyncio.ensure_future(
                    self._send(self.members.entries[shard], request, spread, hold)
                )
                for shard, request in requests.items()
            ]
            try:
                if own is not None:
                    await self._run_own(own, spread)
                if tasks:
                    await asyncio.wait(tasks)
            finally:
                for task in tasks:
                    task.cancel()
            yield spread

    async def apply_here_first(
        self, request: Request, own: LocalReply, content: Callable[[], bytes | None]
    ) -> ShardReplies:
        """Make a change on this shard, then on all others. Raises Problem if this shard rejects it.

        ``content`` is called after this shard's reply and returns the body for the others; None:
        the body of the request. The replies must be small.
        """
        spread = ShardReplies()
        await self._run(own, spread)
        given = content()
        sent = await _content(request) if given is None else given
        forwarded = ForwardedRequest.of(request.scope, str(self.own), sent)
        with self._holding() as hold:
            others = self.members.others
            await asyncio.gather(*(self._send(each, forwarded, spread, hold) for each in others))
        return spread

    async def fetch_from_others(self, target: str, token: str | None) -> ShardReplies:
        """Send a GET of this process, with its own token, to all other shards."""
        headers = {FORWARDED: str(self.own)}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        forwarded = ForwardedRequest("GET", target, headers)
        spread = ShardReplies()
        with self._holding() as hold:
            others = self.members.others
            await asyncio.gather(*(self._send(each, forwarded, spread, hold) for each in others))
        return spread

    async def _run(self, own: LocalReply, spread: ShardReplies) -> None:
        """Add this shard's reply. Raises its problem, except 404."""
        try:
            spread.answers[self.own] = await own()
        except (Problem, StorageError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if problem.kind.status != 404:
                raise problem from error
            spread.refusals[self.own] = problem

    async def _run_own(self, own: LocalReply, spread: ShardReplies) -> None:
        """Add this shard's reply as that of another shard, so that all shards reply alike.

        Raises Problem for an invalid request.
        """
        try:
            await self._run(own, spread)
        except Problem as problem:
            if problem.kind.status in _INVALID_REQUEST_STATUSES:
                raise
            spread.missing[self.own] = _describe(problem.kind.status, problem)

    async def _send(
        self,
        entry: ShardEntry,
        forwarded: ForwardedRequest,
        spread: ShardReplies,
        hold: Callable[[int], None],
    ) -> None:
        try:
            with self._counted():
                async with asyncio.timeout(self._timeout_s):
                    reply = await self._whole(entry, forwarded, hold)
        except TimeoutError:
            spread.missing[entry.shard] = f"no answer within {self._timeout_s:g} s"
        except (RelayError, ValueError) as error:
            spread.missing[entry.shard] = str(error) or type(error).__name__
        except Problem as problem:
            spread.missing[entry.shard] = problem.detail
        else:
            _sort_in(spread, entry.shard, reply.status, reply.body)

    async def _whole(
        self, entry: ShardEntry, forwarded: ForwardedRequest, hold: Callable[[int], None]
    ) -> RelayedReply:
        """Receive a whole reply. Raises RelayError; ValueError for an invalid address."""
        service = self._connections_to(self._url_of(entry))
        request = forwarded.encode(service)
        return await service.send(request, RELAY_TIMEOUT_S, forwarded.client, hold)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request to another shard. Raises Problem (503) above REQUESTS_MAX."""
        if self._in_progress >= REQUESTS_MAX:
            raise Problem(
                problems.OVERLOADED,
                f"{REQUESTS_MAX} requests to other shards are in progress; retry later",
            )
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1

    @contextlib.contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts received bytes until the context ends.

        The function raises _ReplyTooLarge above REPLIES_SIZE_MAX.
        """
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            mine += size
            self._held += size
            if self._held > REPLIES_SIZE_MAX:
                raise _ReplyTooLarge("the shards' replies are too large together; request less")

        try:
            yield hold
        finally:
            self._held -= mine


_INVALID_REQUEST_STATUSES: Final = frozenset({400, 413, 415, 422})
"""Statuses of requests that every shard would reject."""


async def _content(request: Request) -> bytes:
    return await request.body() if request.method in BODY_METHODS else b""


def _names_a_shard(scope: Scope) -> bool:
    query: bytes = scope["query_string"]
    return query.startswith(b"shard=") or b"&shard=" in query


def _with(
    forwarded: ForwardedRequest, path: str, given: list[tuple[str, str]], changed: Mapping[str, Any]
) -> ForwardedRequest:
    kept = [(name, value) for name, value in given if name not in changed]
    query = urlencode(kept + [(name, v) for name, v in changed.items() if v is not None])
    target = f"{path}{'&' if '?' in path else '?'}{query}" if query else path
    return ForwardedRequest(forwarded.method, target, forwarded.headers, forwarded.content)


def _sort_in(spread: ShardReplies, shard: int, status: int, body: bytes) -> None:
    """Add a reply of another shard to the field it belongs in."""
    if 200 <= status < 300:
        spread.answers[shard] = body
        return
    problem = _problem(status, body)
    if status == 404 and problem is not None:
        spread.refusals[shard] = problem
    else:
        spread.missing[shard] = _describe(status, problem)


def _describe(status: int, problem: Problem | None) -> str:
    """Return why a shard with an error reply is missing."""
    return f"it answered {status}" + ("" if problem is None else f": {problem.detail}")


def _problem(status: int, body: bytes) -> Problem | None:
    """Decode a problem; None for another body, or for a type that is not in the registry."""
    try:
        members = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
    kind = problems.REGISTRY.get(str(members.get("type", "")).removeprefix(problems.TYPE_PREFIX))
    if kind is None or kind.status != status:
        return None
    extra = {name: members[name] for name in ("complete",) if name in members}
    return Problem(kind, str(members.get("detail", "")), extra=extra)


_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, NotSent)
"""Errors before any byte of the request was sent."""


def _unreachable(entry: ShardEntry, error: Exception) -> Problem:
    why = str(error) or type(error).__name__
    return Problem(
        problems.SHARD_UNREACHABLE,
        f"shard {entry.shard} does not answer: {why}",
        extra={"shard": entry.shard, "sent": not isinstance(error, _NEVER_SENT)},
    )
