"""Passes requests on to shards, with the client's token and body as they came."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.shards import BY, Shard, Shards, problem_type
from mqstore.service import problems
from mqstore.service.forwarding import ForwardedRequest, returned
from mqstore.service.http import Reply
from mqstore.service.problems import Problem
from mqstore.wire.idempotency import unique_keys

_REFUSED_BEFORE: Final = frozenset(
    each.urn
    for each in (problems.COORDINATOR_NOT_READY, problems.STORE_NOT_READY, problems.SHUTTING_DOWN)
)
"""Problems of a shard that has looked at nothing of the request."""


class Message(msgspec.Struct, rename="camel"):
    uniq_key: str | None = None


class Place(msgspec.Struct, rename="camel"):
    """What of a begin decides where it goes."""

    messages: list[Message]
    topic: str = ""
    shard: int | None = None


_PLACE: Final = msgspec.json.Decoder(Place)


def place_of(body: bytes) -> Place | None:
    """None for a body that every shard rejects."""
    try:
        found = _PLACE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.messages else None


class Relay:
    """Used on the event loop only."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def decide(self, transaction_id: str, scope: Scope, body: bytes) -> Reply:
        """The reply of the shard that the id names. Raises Problem."""
        shard = self._shards.of_transaction(transaction_id)
        return _reply(await _sent(shard, ForwardedRequest.of(scope, BY, body)))

    async def pass_on(self, transaction_id: str, request: Request) -> Response:
        """As ``decide``, for FastAPI. Raises Problem."""
        shard = self._shards.of_transaction(transaction_id)
        body = await request.body() if request.method == "POST" else b""
        return response_of(await _sent(shard, ForwardedRequest.of(request.scope, BY, body)))

    async def begin(self, scope: Scope, body: bytes, idempotency_key: str | None) -> Reply:
        """The reply of the shard that the transaction belongs to, or that its turn has come to.
        Raises Problem."""
        request, place = ForwardedRequest.of(scope, BY, body), place_of(body)
        fixed = None if place is None else self._fixed(place, idempotency_key)
        if fixed is None:
            return _reply(await self._begin_in_turn(request))
        reply = await _sent(fixed, request)
        if place is not None and problem_type(reply) == problems.TOPIC_UNKNOWN.urn:
            await self._refuse_early(fixed, place.topic)
        return _reply(reply)

    def _fixed(self, place: Place, idempotency_key: str | None) -> Shard | None:
        """The one shard where the transaction may begin; None: any. Raises Problem."""
        if place.shard is not None:
            return self._shards.of_number(place.shard)
        key = place.messages[0].uniq_key
        if key is None and idempotency_key is not None:
            key = unique_keys(idempotency_key, len(place.messages))[0]
        return None if key is None else self._shards.of_key(key)

    async def _begin_in_turn(self, request: ForwardedRequest) -> httpx.Response:
        """A shard that cannot be reached, that is not ready, or that is new and lacks the topic, is
        passed over: it has stored nothing. Raises Problem."""
        replies: list[httpx.Response] = []
        trouble: ShardUnavailable | None = None
        for shard in self._shards.in_turn():
            try:
                reply = await shard.send(request)
            except ShardUnavailable as error:
                if error.is_sent:
                    raise error.problem from error
                trouble = error
                continue
            kind = problem_type(reply)
            if kind != problems.TOPIC_UNKNOWN.urn and kind not in _REFUSED_BEFORE:
                return reply
            replies.append(reply)
        if trouble is not None and not replies:
            raise trouble.problem
        return min(replies, key=lambda reply: problem_type(reply) not in _REFUSED_BEFORE)

    async def _refuse_early(self, fixed: Shard, topic: str) -> None:
        """Raises Problem (503) where another shard has the topic: a new shard has yet to copy it,
        and a client that reads 404 would give the transaction up."""
        for shard in self._shards:
            if shard is not fixed and await _has_topic(shard, topic):
                raise Problem(
                    problems.COORDINATOR_NOT_READY,
                    f"shard {fixed.ordinal} does not have topic {topic} yet; try again",
                )


async def _has_topic(shard: Shard, topic: str) -> bool:
    try:
        reply = await shard.call("GET", f"/v1/topics/{quote(topic, safe='')}")
    except ShardUnavailable:
        return False
    return reply.is_success


async def _sent(shard: Shard, request: ForwardedRequest) -> httpx.Response:
    """Raises Problem."""
    try:
        return await shard.send(request)
    except ShardUnavailable as error:
        raise error.problem from error


def response_of(reply: httpx.Response) -> Response:
    """A shard's reply as this service's."""
    return Response(reply.content, reply.status_code, headers=returned(reply.headers))


def _reply(reply: httpx.Response) -> Reply:
    headers = returned(reply.headers)
    media_type = headers.pop("content-type", "application/json").encode()
    kept = tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())
    return Reply(reply.content, reply.status_code, media_type, kept)
