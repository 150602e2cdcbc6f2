"""What changes every shard: topics, groups and subscriptions are the same on all of them.

This shard goes first, and when it refuses nothing is changed anywhere. A shard that could not be
told is named in the answer; telling it again does no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from mqstore.service.app import json_response
from mqstore.service.shards import ShardReplies, Shards
from mqstore.wire import shards as wire

Answer = TypeVar("Answer", bound=wire.OfShards)


async def on_all(
    shards: Shards,
    request: Request,
    kind: type[Answer],
    act: Callable[[], Awaitable[Answer]],
    join: Callable[[Sequence[Answer]], Answer],
    spec: Callable[[Answer], BaseModel] | None = None,
) -> Answer:
    """What all shards made of it; ``join`` is given each one's answer, this shard's first.
    ``spec`` of what this shard made is asked of the others, else what it was asked itself.

    Raises Problem where none has what it is about.
    """
    if not shards.fans_out(request.scope):
        return await act()
    made: list[Answer] = []

    async def own() -> bytes:
        made.append(await act())
        return b""

    def content() -> bytes | None:
        if spec is None or not made:
            return None
        return spec(made[0]).model_dump_json(by_alias=True, exclude_none=True).encode()

    spread = await shards.apply_here_first(request, own, content)
    spread.require_reply()
    made += _others(spread, shards.own, kind)
    told = wire.Shards.model_validate(spread.view())
    return join(made).model_copy(update={"shards": told})


async def gone_on_all(
    shards: Shards, request: Request, act: Callable[[], Awaitable[None]]
) -> Response:
    """As ``on_all``, of what leaves nothing to tell: 204, or 200 with the shards where one is
    missing."""
    if not shards.fans_out(request.scope):
        await act()
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def own() -> bytes:
        await act()
        return b""

    spread = await shards.apply_here_first(request, own, lambda: None)
    spread.require_reply()
    if spread.missing:
        return json_response({"shards": spread.view()})
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _others(spread: ShardReplies, own: int, kind: type[Answer]) -> list[Answer]:
    """What cannot be read is of a shard with another version, which did it all the same."""
    found = []
    for shard, body in sorted(spread.answers.items()):
        if shard == own:
            continue
        try:
            found.append(kind.model_validate_json(body, extra="ignore"))
        except ValidationError as error:
            spread.missing[shard] = f"it answered what is not known here: {error.error_count()}"
    return found
