"""Several shards behind each of their addresses: what is another's is passed on to it, what is of
all is asked of all at one time, and who did not answer is named.

What came with the header ``x-mqstore-forwarded`` is answered by this shard alone, so nothing is
passed on twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mqstore.service import problems
from mqstore.service.forwarding import (
    FORWARDED,
    ForwardedRequest,
    RelayedResponse,
    returned,
    was_forwarded,
)
from mqstore.service.http import BODY_METHODS, Reply, problem_of
from mqstore.service.joining import Joining
from mqstore.service.membership import Membership, ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings
from mqstore.service.structs import struct_of
from mqstore.service.upstream import UpstreamTls
from mqstore.storage.errors import StorageError
from mqstore.wire import shards as wire

ASKED_MAX: Final = 1_024
"""Requests to other shards at one time."""
ANSWERS_SIZE_MAX: Final = 128 << 20
"""Bytes of other shards' answers that are held at one time, over all requests."""
CONNECT_TIMEOUT_S: Final = 2.0
RELAY_TIMEOUT_S: Final = 65.0
"""Without a byte of an answer that is passed on: longer than the longest poll."""
LOOK_INTERVAL_S: Final = 1.0

Own = Callable[[], Awaitable[bytes]]
"""This shard's part of an answer, as it would answer by itself."""
Changed = Callable[[int], Mapping[str, Any]]
"""By shard, parameters that it is asked with instead of the client's; None: without."""


_ShardsView: Final = struct_of(wire.Shards)


@dataclass(slots=True)
class ShardReplies:
    """What each shard made of one request."""

    answers: dict[int, bytes] = field(default_factory=dict)
    refusals: dict[int, Problem] = field(default_factory=dict)
    """Of shards that have nothing of the kind (404)."""
    missing: dict[int, str] = field(default_factory=dict)
    """Why each of the others did not answer."""

    @property
    def is_whole(self) -> bool:
        """Whether all have answered, and who has nothing has looked at all that there is."""
        return not self.missing and all(
            each.extra.get("complete", True) for each in self.refusals.values()
        )

    def view(self) -> wire.Shards:
        asked = sorted({*self.answers, *self.refusals, *self.missing})
        why = {str(number): self.missing[number] for number in sorted(self.missing)}
        return _ShardsView(asked=tuple(asked), missing=tuple(sorted(self.missing)), why=why)

    def require_answers(self) -> None:
        """Raises Problem where no shard has what was asked for, or none answers."""
        if self.answers:
            return
        if self.refusals:
            found = self.refusals[min(self.refusals)]
        else:
            found = Problem(problems.SHARD_UNREACHABLE, "no shard answers")
        if not self.is_whole:
            found.extra["complete"] = False
        if self.missing:
            found.extra["shards"] = self.view()
        raise found


class _Health(msgspec.Struct):
    shards: frozenset[int] | None = None


class _Unanswered(Exception):
    """By another shard."""


class Shards:
    """This service's way to the same service of the other shards. Used on the event loop only."""

    def __init__(self, settings: Settings, url_of: Callable[[ShardEntry], str]) -> None:
        """Raises ConfigurationError for a list, or certificates, that cannot be used."""
        self.members = Membership(settings.shards_file, settings.shard)
        self.own = settings.shard
        self._url_of = url_of
        self._timeout_s = settings.shard_timeout_s
        self._tls = None if settings.shards_file is None else UpstreamTls.of(settings)
        self.joining = Joining(self.members, self._known_at)
        self._following: asyncio.Task[None] | None = None
        self._asked = 0
        self._held = 0

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=True if self._tls is None else self._tls.context,
            timeout=httpx.Timeout(RELAY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    def follow(self) -> None:
        """Look again and again whether the list has changed, and whether all know of this shard."""
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if "_http" in vars(self):
            await self._http.aclose()

    async def _follow(self) -> None:
        while True:
            self.members.reload_if_changed()
            if self._tls is not None:
                self._tls.reload_if_changed()
            await self.joining.look()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _known_at(self, url: str) -> frozenset[int] | None:
        """As ``joining.KnownAt``; a release that knows of no list tells none."""
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._http.get(f"{url.rstrip('/')}/healthz/startup")
            return msgspec.json.decode(answer.content, type=_Health).shards
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError):
            return None

    # whom a request is for ------------------------------------------------------------------

    def fans_out(self, scope: Scope) -> bool:
        """Whether a request that named no shard is for all of them."""
        return not self.members.alone and not _names_a_shard(scope) and not was_forwarded(scope)

    def require_shard(self, scope: Scope) -> None:
        """Raises Problem (400) where there are several, for what only one can answer."""
        if self.fans_out(scope):
            numbers = self.members.numbers
            raise Problem(
                problems.SHARD_NEEDED,
                f"there are the shards {', '.join(map(str, numbers))}, and a queue is of one: "
                "name it with ?shard=",
                extra={"shards": numbers},
            )

    def other(self, shard: int | None, scope: Scope) -> ShardEntry | None:
        """Whom a request that names a shard is to be passed on to; None: it is ours.

        Raises Problem: 404 for no shard, 421 where it was passed on before.
        """
        if shard is None or shard == self.own:
            return None
        entry = self.members.entries.get(shard)
        if entry is None:
            known = ", ".join(map(str, self.members.numbers))
            raise Problem(
                problems.SHARD_UNKNOWN,
                f"there is no shard {shard}; name one of these: {known}",
                extra={"shards": self.members.numbers},
            )
        if was_forwarded(scope):
            raise self.misdirected(entry)
        return entry

    def misdirected(self, entry: ShardEntry) -> Problem:
        """What is answered instead of being passed on."""
        place = self.place_of(entry.shard)
        return Problem(
            problems.WRONG_SHARD,
            f"this is shard {self.own}; shard {entry.shard} is at {place['url']}",
            extra=place,
        )

    def place_of(self, shard: int) -> dict[str, Any]:
        """One of the others, as a client is told of it."""
        return {"shard": shard, "url": self._url_of(self.members.entries[shard])}

    # one other shard ------------------------------------------------------------------------

    async def relay(self, entry: ShardEntry, request: Request) -> None:
        """Forward a request to another shard.

        Always raises: RelayedResponse, which streams the shard's response, or Problem.
        """
        forwarded = ForwardedRequest.of(request.scope, str(self.own), await _content(request))
        with self._counted():
            try:
                built = self._http.build_request(**forwarded.at(self._url_of(entry)))
                answer = await self._http.send(built, stream=True)
            except httpx.HTTPError as error:
                raise _unreachable(entry, error) from error
        raise RelayedResponse(_Stream(answer))

    async def reply(self, entry: ShardEntry, forwarded: ForwardedRequest) -> Reply:
        """As ``relay``, for a hot route. Raises Problem."""
        with self._counted(), self._holding() as hold:
            try:
                answer, body = await self._whole(entry, forwarded, hold)
            except (httpx.HTTPError, _Unanswered) as error:
                raise _unreachable(entry, error) from error
        headers = returned(answer.headers)
        media_type = headers.pop("content-type", "application/json").encode()
        given = tuple((name.encode(), value.encode()) for name, value in headers.items())
        return Reply(body, answer.status_code, media_type, given)

    # all of them ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def fan_out(
        self,
        request: Request,
        own: Own,
        *,
        changed: Changed = lambda _: {},
        target: str | None = None,
        skip: Container[int] = (),
    ) -> AsyncIterator[ShardReplies]:
        """Ask all but ``skip`` at one time; their answers are held for as long as the context is.

        ``target`` is asked of the others instead of the request's own path and query. Raises
        Problem for what no shard would answer.
        """
        forwarded = ForwardedRequest.of(request.scope, str(self.own), await _content(request))
        given = request.query_params.multi_items() if target is None else []
        path = forwarded.target.partition("?")[0] if target is None else target
        spread = ShardReplies()
        with self._holding() as hold:
            tasks = [
                asyncio.ensure_future(
                    self._ask(
                        each, _with(forwarded, path, given, changed(each.shard)), spread, hold
                    )
                )
                for each in self.members.others
                if each.shard not in skip
            ]
            try:
                if self.own not in skip:
                    await self._ask_own_too(own, spread)
                if tasks:
                    await asyncio.wait(tasks)
            finally:
                for task in tasks:
                    task.cancel()
            yield spread

    async def apply_here_first(
        self, request: Request, own: Own, content: Callable[[], bytes | None]
    ) -> ShardReplies:
        """For changes: when this shard refuses, none of the others is asked; what they answered is
        small. ``content``, told once this shard is done, is sent to them instead of the request's.
        Raises Problem."""
        spread = ShardReplies()
        await self._ask_own(own, spread)
        given = content()
        sent = await _content(request) if given is None else given
        forwarded = ForwardedRequest.of(request.scope, str(self.own), sent)
        with self._holding() as hold:
            others = self.members.others
            await asyncio.gather(*(self._ask(each, forwarded, spread, hold) for each in others))
        return spread

    async def fetch_from_others(self, target: str, token: str | None) -> ShardReplies:
        """The answers to a GET of this process's own, with its own token."""
        headers = {FORWARDED: str(self.own)}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        forwarded = ForwardedRequest("GET", target, headers)
        spread = ShardReplies()
        with self._holding() as hold:
            others = self.members.others
            await asyncio.gather(*(self._ask(each, forwarded, spread, hold) for each in others))
        return spread

    async def _ask_own(self, own: Own, spread: ShardReplies) -> None:
        """Raises Problem: what this shard refuses, but for 404."""
        try:
            spread.answers[self.own] = await own()
        except (Problem, StorageError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if problem.kind.status != 404:
                raise problem from error
            spread.refusals[self.own] = problem

    async def _ask_own_too(self, own: Own, spread: ShardReplies) -> None:
        """As the others are asked: whichever shard a request comes to, its answer is the same.
        Raises Problem for what is wrong with the request itself."""
        try:
            await self._ask_own(own, spread)
        except Problem as problem:
            if problem.kind.status in _WRONG_EVERYWHERE:
                raise
            spread.missing[self.own] = _answered(problem.kind.status, problem)

    async def _ask(
        self,
        entry: ShardEntry,
        forwarded: ForwardedRequest,
        spread: ShardReplies,
        hold: Callable[[int], None],
    ) -> None:
        try:
            with self._counted():
                async with asyncio.timeout(self._timeout_s):
                    answer, body = await self._whole(entry, forwarded, hold)
        except TimeoutError:
            spread.missing[entry.shard] = f"no answer within {self._timeout_s:g} s"
        except (httpx.HTTPError, _Unanswered) as error:
            spread.missing[entry.shard] = str(error) or type(error).__name__
        except Problem as problem:
            spread.missing[entry.shard] = problem.detail
        else:
            _sort_in(spread, entry.shard, answer.status_code, body)

    async def _whole(
        self, entry: ShardEntry, forwarded: ForwardedRequest, hold: Callable[[int], None]
    ) -> tuple[httpx.Response, bytes]:
        """Raises httpx.HTTPError, _Unanswered."""
        parts = []
        async with self._http.stream(**forwarded.at(self._url_of(entry))) as answer:
            async for part in answer.aiter_raw():
                hold(len(part))
                parts.append(part)
        return answer, b"".join(parts)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Raises Problem (503) when too many are asked already."""
        if self._asked >= ASKED_MAX:
            raise Problem(problems.OVERLOADED, "too much is asked of other shards; try again later")
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1

    @contextlib.contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Counts bytes as they come, until the context ends. Raises _Unanswered for too many."""
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            mine += size
            self._held += size
            if self._held > ANSWERS_SIZE_MAX:
                raise _Unanswered("the shards' answers are too large together; ask for less")

        try:
            yield hold
        finally:
            self._held -= mine


_WRONG_EVERYWHERE: Final = frozenset({400, 413, 415, 422})
"""Statuses of what every shard would refuse."""


class _Stream(StreamingResponse):
    """Another shard's answer, passed on as it comes; its connection ends with ours."""

    def __init__(self, answer: httpx.Response) -> None:
        headers = returned(answer.headers)
        length = answer.headers.get("content-length")
        super().__init__(
            answer.aiter_raw(),
            answer.status_code,
            headers=headers if length is None else headers | {"content-length": length},
        )
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()


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
    """Where an answer of another shard belongs."""
    if 200 <= status < 300:
        spread.answers[shard] = body
        return
    problem = _problem(status, body)
    if status == 404 and problem is not None:
        spread.refusals[shard] = problem
    else:
        spread.missing[shard] = _answered(status, problem)


def _answered(status: int, problem: Problem | None) -> str:
    """Why a shard is missing."""
    return f"it answered {status}" + ("" if problem is None else f": {problem.detail}")


def _problem(status: int, body: bytes) -> Problem | None:
    """None for what is no problem of ours."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
    kind = problems.REGISTRY.get(str(told.get("type", "")).removeprefix(problems.TYPE_PREFIX))
    if kind is None or kind.status != status:
        return None
    extra = {name: told[name] for name in ("complete",) if name in told}
    return Problem(kind, str(told.get("detail", "")), extra=extra)


_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout)
"""Errors after which the other shard has nothing of a request."""


def _unreachable(entry: ShardEntry, error: Exception) -> Problem:
    why = str(error) or type(error).__name__
    return Problem(
        problems.SHARD_UNREACHABLE,
        f"shard {entry.shard} does not answer: {why}",
        extra={"shard": entry.shard, "sent": not isinstance(error, _NEVER_SENT)},
    )
