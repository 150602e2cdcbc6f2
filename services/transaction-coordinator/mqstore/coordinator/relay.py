"""Passes requests on to shards, with the client's token and body as they came."""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.shards import BY, Shard, Shards, problem_type
from mqstore.service import problems
from mqstore.service.forwarding import ForwardedRequest, reply_of
from mqstore.service.http import Reply
from mqstore.service.problems import Problem
from mqstore.service.relay_connections import RelayedReply

_REFUSED_BEFORE: Final = frozenset(
    each.urn
    for each in (problems.COORDINATOR_NOT_READY, problems.STORE_NOT_READY, problems.SHUTTING_DOWN)
)
"""Problems of a shard that has looked at nothing of the request."""
_STORED_NOTHING: Final = _REFUSED_BEFORE | {problems.TOPIC_UNKNOWN.urn}
"""Problems after which another shard may begin the transaction: a new shard lacks the topic."""


class Message(msgspec.Struct, rename="camel"):
    """A message of a begin."""

    uniq_key: str | None = None


class Place(msgspec.Struct, rename="camel"):
    """The fields of a begin that select its shard."""

    messages: list[Message]
    topic: str = ""
    shard: int | None = None

    def has_key(self, idempotency_key: str | None) -> bool:
        """Whether the client names the transaction, so that it belongs to the shard of its key."""
        return idempotency_key is not None or self.messages[0].uniq_key is not None


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

    async def decide(self, transaction_id: str, request: ForwardedRequest) -> Reply:
        """The reply of the shard that the id names. Raises Problem."""
        return reply_of(await self._decided(transaction_id, request))

    async def pass_on(self, transaction_id: str, request: Request) -> Response:
        """As ``decide``, for FastAPI. Raises Problem."""
        body = await request.body() if request.method == "POST" else b""
        forwarded = ForwardedRequest.of(request.scope, None, body)
        return response_of(await self._decided(transaction_id, forwarded))

    async def _decided(self, transaction_id: str, request: ForwardedRequest) -> RelayedReply:
        """The reply of a transaction's shard. A shard that is not in the list here is new or was
        removed, which any other shard knows: it forwards the request. Raises Problem."""
        shard = self._shards.of_transaction(transaction_id)
        if shard is None:
            return await self._sent_in_turn(request, _REFUSED_BEFORE)
        return await _sent(shard, request.by(BY))

    def with_client(self, scope: Scope) -> ForwardedRequest:
        """A begin without its body, with the producer's address, which its half messages have."""
        client = scope.get("client") or ("127.0.0.1", 0)
        request = ForwardedRequest.of(scope, None)
        return request.with_client((client[0], client[1]), self._shards.token())

    async def begin(self, request: ForwardedRequest, idempotency_key: str | None) -> Reply:
        """The reply of the shard that the request names, that the unique key of its first message
        names, or whose turn has come. Raises Problem."""
        place = place_of(request.content)
        if place is None or (place.shard is None and not place.has_key(idempotency_key)):
            return reply_of(await self._sent_in_turn(request.by(BY), _STORED_NOTHING))
        named = None if place.shard is None else self._shards.of_number(place.shard)
        if named is not None:
            reply = await _sent(named, request.by(BY))
        else:
            # Not marked, so that the shard that gets it forwards it to the one of the key, or to
            # one that is not in the list here.
            reply = await self._sent_in_turn(request, frozenset())
        await self._refuse_early(place, reply)
        return reply_of(reply)

    async def _sent_in_turn(
        self, request: ForwardedRequest, passed_over: frozenset[str]
    ) -> RelayedReply:
        """The first reply that is no problem of the types ``passed_over``. A shard that surely did
        not get the request is passed over, too. Raises Problem."""
        replies: list[RelayedReply] = []
        trouble: ShardUnavailable | None = None
        for shard in self._shards.in_turn():
            try:
                reply = await shard.send(request)
            except ShardUnavailable as error:
                if error.is_sent:
                    raise error.problem from error
                trouble = error
                continue
            if problem_type(reply) not in passed_over:
                return reply
            replies.append(reply)
        if trouble is not None and not replies:
            raise trouble.problem
        return min(replies, key=lambda reply: problem_type(reply) not in _REFUSED_BEFORE)

    async def _refuse_early(self, place: Place, reply: RelayedReply) -> None:
        """Raise Problem (503) in place of a refusal that ends by itself, and after which a client
        would give the transaction up: a new shard has yet to copy the topic, which another shard
        has, or the shards' lists differ for a moment."""
        kind = problem_type(reply)
        shard = "the shard of its key" if place.shard is None else f"shard {place.shard}"
        if kind == problems.WRONG_SHARD.urn and place.shard is None:
            why = f"the shards do not agree yet on {shard}"
        elif kind == problems.TOPIC_UNKNOWN.urn and await self._has_topic(place.topic):
            why = f"{shard} does not have topic {place.topic} yet"
        else:
            return
        raise Problem(problems.COORDINATOR_NOT_READY, f"{why}; try again")

    async def _has_topic(self, topic: str) -> bool:
        """Whether a shard that can be reached has the topic."""
        for shard in self._shards:
            with contextlib.suppress(ShardUnavailable):
                if (await shard.call("GET", f"/v1/topics/{quote(topic, safe='')}")).is_success:
                    return True
        return False


async def _sent(shard: Shard, request: ForwardedRequest) -> RelayedReply:
    """Raises Problem."""
    try:
        return await shard.send(request)
    except ShardUnavailable as error:
        raise error.problem from error


def response_of(relayed: RelayedReply) -> Response:
    """A shard's reply as this service's."""
    reply = reply_of(relayed)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    headers["content-type"] = reply.content_type.decode("latin-1")
    return Response(reply.body, reply.status, headers=headers)
