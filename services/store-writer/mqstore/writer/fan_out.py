"""Changes of topics, groups and subscriptions on all shards, which are to have the same ones.

This shard changes first. If it refuses, no shard changes. The reply names each shard that could not
be reached; repeating the request is safe.
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


async def apply_to_all_shards(
    shards: Shards,
    request: Request,
    kind: type[Answer],
    act: Callable[[], Awaitable[Answer]],
    join: Callable[[Sequence[Answer]], Answer],
    spec: Callable[[Answer], BaseModel] | None = None,
) -> Answer:
    """Apply a change to all shards and return the joined result. Raises Problem if none has it.

    ``act`` changes this shard. ``join`` gets the result of each shard, this one's first. ``spec``
    derives the body sent to the others from this shard's result; without it they get the body of
    the request.
    """
    if not shards.fans_out(request.scope):
        return await act()
    made: list[Answer] = []

    async def own() -> bytes:
        """Change this shard."""
        made.append(await act())
        return b""

    def content() -> bytes | None:
        """Return the body for the other shards, None for the client's body."""
        if spec is None or not made:
            return None
        return spec(made[0]).model_dump_json(by_alias=True, exclude_none=True).encode()

    spread = await shards.apply_here_first(request, own, content)
    spread.require_reply()
    made += decode_replies(spread, kind, but=shards.own).values()
    shards_view = wire.Shards.model_validate(spread.view())
    return join(made).model_copy(update={"shards": shards_view})


async def delete_on_all_shards(
    shards: Shards, request: Request, act: Callable[[], Awaitable[None]]
) -> Response:
    """Delete something on all shards. Raises Problem if none has it.

    Returns 204, or 200 with the shards if one of them could not be reached.
    """
    if not shards.fans_out(request.scope):
        await act()
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def own() -> bytes:
        """Change this shard."""
        await act()
        return b""

    spread = await shards.apply_here_first(request, own, lambda: None)
    spread.require_reply()
    if spread.missing:
        return json_response({"shards": spread.view()})
    return Response(status_code=HTTPStatus.NO_CONTENT)


def decode_replies(
    spread: ShardReplies, kind: type[Answer], *, but: int | None = None
) -> dict[int, Answer]:
    """Decode the results of shards, without the one of ``but``, by number.

    A shard of another version whose result cannot be decoded is listed as missing; it did apply the
    change.
    """
    found = {}
    for shard, body in sorted(spread.answers.items()):
        if shard == but:
            continue
        try:
            found[shard] = kind.model_validate_json(body, extra="ignore")
        except ValidationError as error:
            spread.missing[shard] = (
                f"its reply cannot be decoded here: {error.error_count()} errors"
            )
    return found
