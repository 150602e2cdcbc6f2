"""Which shards own unique keys and ordering keys, and the release of one from its keys."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Reply
from mqstore.wire.operation import Operation, Role, Target


class KeyShards(Reply):
    """The shards among which unique keys and ordering keys choose."""

    shards: tuple[int, ...]
    released: Annotated[
        tuple[int, ...],
        Field(description="Shards that were released from their keys and run until now."),
    ]


RELEASE_KEYS: Final = Operation(
    name="release_keys",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path="/v1/shards/{number}:release-keys",
    role=Role.ADMIN,
    summary="Move a shard's keys to the others",
    tag="store",
    reply=KeyShards,
    example={"shards": [0, 1], "released": [2]},
    problems=(problems.RELEASE_REFUSED,),
)
