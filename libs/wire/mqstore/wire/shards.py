"""The addresses of shards, and the shards that replied to a request."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Reply, left_out
from mqstore.wire.operation import Operation, Role, Target


class Shards(Reply, title="ShardsView"):
    """The shards that a request was sent to, and those without a reply."""

    requested: Annotated[tuple[int, ...], Field(alias="asked")]
    missing: Annotated[
        tuple[int, ...], Field(description="Shards whose data is missing in the reply.")
    ]
    why: Annotated[dict[str, str], Field(description="By number of a missing shard, the reason.")]


class OfShards(Reply):
    """Base of replies that may be of several shards."""

    shards: Shards | None = left_out(
        "The shards that the request was sent to and those missing, where there are several."
    )


class ShardEntry(Reply, title="ShardView"):
    """One shard, with the addresses of its services."""

    shard: int
    store_host: str
    writer_url: str
    query_url: str


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
