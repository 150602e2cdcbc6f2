"""Messages and begins of transactions under unique keys go to the shards that their keys name, so
that a duplicate needs one shard. Messages with an ordering key go to the shard of that key.

A produce whose keys name one shard goes there whole. One whose keys name several is divided: each
shard gets its messages as a request of their own, which is all or none by itself, and the reply has
all placements in the order of the request. A begin is never divided: the unique key of its first
message chooses the shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.http import Reply
from mqstore.service.key_shards import shard_of, shard_of_ordering_key, shards_to_visit
from mqstore.service.problems import SHARD_UNREACHABLE, Problem
from mqstore.service.shards import Shards
from mqstore.writer.key_ownership import KeyOwnership

_MISDIRECTED: Final = int(HTTPStatus.MISDIRECTED_REQUEST)
_OF_WHOLE_BODY: Final = frozenset({"x-mqstore-crc32c", "idempotency-key"})
"""Headers that hold for an undivided request only."""

Visits = tuple[int, ...]
"""Shards in the order in which a request visits them: the last one stores what the one before it
does not know."""
Parts = dict[Visits, list[int]]
"""Numbers of the messages of a request, from 0, by where they go."""


class _Stored(msgspec.Struct):
    """A ``ProduceReply``."""

    messages: list[msgspec.Raw]


class KeyRouting:
    """Used on the event loop only."""

    def __init__(self, shards: Shards, ownership: KeyOwnership) -> None:
        self._shards = shards
        self._ownership = ownership
        self._shard_of = partial(shard_of, exists=ownership.lists)

    def parts(
        self,
        given: Sequence[str | None],
        window_ms: int,
        ordering: Sequence[str | None] | None = None,
    ) -> Parts:
        """Assign the messages of a request to shards; no parts if no message has a key.

        ``given`` are their unique keys, ``ordering`` their ordering keys, which take precedence.
        Messages without a key go with the first message that has one. Raises Problem (503) while
        the shards that own keys are unknown.
        """
        if not any(given) and not any(ordering or ()):
            return {}
        owners = self._ownership.current
        former = self._ownership.former(owners, window_ms)
        visits = [
            shards_to_visit(key, owners.shards, former, self._shard_of) if key else None
            for key in given
        ]
        for number, key in enumerate(ordering or ()):
            if key:  # no duplicate is on another shard of a message without a unique key
                before = former if given[number] else ()
                visits[number] = shards_to_visit(key, owners.shards, before, shard_of_ordering_key)
        first = next((each for each in visits if each is not None), None)
        found: Parts = {}
        if first is not None:
            for number, each in enumerate(visits):
                found.setdefault(each or first, []).append(number)
        return found

    def are_own(self, parts: Parts) -> bool:
        """Whether this shard stores all of them, and no other has to be visited before."""
        own = (self._shards.own,)
        return all(visits == own for visits in parts)

    async def require_own(
        self, parts: Parts, is_known: Callable[[list[int]], Awaitable[bool]]
    ) -> None:
        """Raise Problem (421) for a forwarded request that another shard has to store.

        ``is_known`` returns whether any of the numbered messages was stored here before.
        """
        own = self._shards.own
        for visits, numbers in parts.items():
            last = self._shards.find_remote(visits[-1], _NOT_FORWARDED)
            if last is not None and not (own in visits and await is_known(numbers)):
                raise self._shards.misdirected(last)

    async def visit(
        self,
        visits: Visits,
        forwarded: ForwardedRequest,
        is_known: Callable[[], Awaitable[bool]],
        store: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """The reply of the shard that stores the messages of one part, or knows them.

        A former owner that was removed or released has nothing that counts. Raises Problem: 503
        for a shard that does not reply, which then names this shard as one that takes messages, and
        while shards have different lists of owners.
        """
        for number, shard in enumerate(visits, 1):
            is_last = number == len(visits)
            if not is_last and not self._ownership.lists(shard):
                continue
            entry = self._shards.find_remote(shard, _NOT_FORWARDED)
            if entry is None:
                if is_last or await is_known():
                    return await store()
                continue
            try:
                reply = await self._shards.reply(entry, forwarded)
            except Problem as problem:
                if problem.kind is SHARD_UNREACHABLE:
                    problem.extra["writable"] = self._shards.place_of(self._shards.own)
                raise
            if reply.status != _MISDIRECTED:
                return reply
            if is_last:
                raise Problem(
                    SHARD_UNREACHABLE,
                    f"shards {self._shards.own} and {shard} do not agree yet on the shard of this "
                    "key; try again",
                    extra={"shard": shard, "sent": False},
                )
        raise AssertionError("a part is stored at one shard or more")


_NOT_FORWARDED: Final[dict[str, Any]] = {"headers": ()}


def divide(forwarded: ForwardedRequest, content: bytes) -> ForwardedRequest:
    """The request with a part of its messages."""
    headers = {
        name: value for name, value in forwarded.headers.items() if name not in _OF_WHOLE_BODY
    }
    return dataclasses.replace(forwarded, headers=headers, content=content)


def divide_json(body: bytes, numbers: Sequence[int], keys: Sequence[str | None]) -> bytes:
    """Some messages of a ``ProduceRequest``, with the unique keys that the client gave them."""
    request: dict[str, Any] = msgspec.json.decode(body)
    messages = request["messages"]
    request["messages"] = [
        messages[each] | ({"uniqKey": keys[each]} if keys[each] else {}) for each in numbers
    ]
    return msgspec.json.encode(request)


def join(parts: Parts, replies: Sequence[Reply]) -> Reply:
    """One reply of all parts; the first that is no success, where there is one, with the ``index``
    of the whole request."""
    placed: dict[int, msgspec.Raw] = {}
    for numbers, reply in zip(parts.values(), replies, strict=True):
        if reply.status != HTTPStatus.CREATED:
            return _of_whole_request(reply, numbers)
        stored = msgspec.json.decode(reply.body, type=_Stored).messages
        placed.update(zip(numbers, stored, strict=True))
    messages = [placed[number] for number in range(len(placed))]
    return Reply(msgspec.json.encode(_Stored(messages)), int(HTTPStatus.CREATED))


def _of_whole_request(reply: Reply, numbers: Sequence[int]) -> Reply:
    """Return the problem of a part, whose messages have these numbers in the request."""
    try:
        problem = msgspec.json.decode(reply.body, type=dict[str, Any])
        own = numbers[problem["index"]]
    except (msgspec.DecodeError, LookupError, TypeError):
        return reply  # not about one message, or not of a shard
    body = msgspec.json.encode(problem | {"index": own})
    return msgspec.structs.replace(reply, body=body)
