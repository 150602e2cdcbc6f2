"""Shards: where they are, and which of them answered a request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.wire.base import Reply, left_out


class Shards(Reply, title="ShardsView"):
    """The shards that a request went to, and those that did not answer."""

    asked: tuple[int, ...]
    missing: Annotated[tuple[int, ...], Field(description="What is on these is not in the answer.")]
    why: Annotated[dict[str, str], Field(description="By number, of those that are missing.")]


class OfShards(Reply):
    """Base of replies that may be of several shards."""

    shards: Shards | None = left_out("Where several were asked: who, and who is missing.")


class ShardEntry(Reply, title="ShardView"):
    """One shard, and where its services are."""

    shard: int
    store_host: str
    writer_url: str
    query_url: str
