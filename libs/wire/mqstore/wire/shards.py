"""The addresses of shards, and the shards that replied to a request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.wire.base import Reply, left_out


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
