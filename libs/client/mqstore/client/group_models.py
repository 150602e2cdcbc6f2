"""What the services answer about consumer groups: offsets, lags, subscriptions, messages' ways.

``shard`` is None where a release answers that did not tell it.
"""

from __future__ import annotations

from typing import Any

from mqstore.client.models import Model
from mqstore.wire.shards import Shards


class Group(Model):
    """A consumer group; ``config`` has the fields of the OpenAPI document."""

    group: str
    configured: bool
    config: dict[str, Any]
    topics: tuple[str, ...]
    shards: Shards | None = None


class Groups(Model):
    groups: tuple[Group, ...]


class GroupOffset(Model):
    """Where a group stands in one queue; ``committed`` is the next message to consume."""

    topic: str
    shard: int | None = None
    queue_id: int
    committed: int | None
    min_offset: int
    max_offset: int
    lag: int


class GroupOffsets(Model):
    group: str
    offsets: tuple[GroupOffset, ...]
    shards: Shards | None = None


class Subscription(Model):
    """Which messages of a topic a group wants; times are milliseconds since the epoch."""

    group: str
    topic: str
    expression: str
    type: str
    version: int
    born_ms: int
    shards: Shards | None = None


class Subscriptions(Model):
    subscriptions: tuple[Subscription, ...]


class OffsetChange(Model):
    shard: int | None = None
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class OffsetsReset(Model):
    """What a reset did, or, as ``dry_run``, would do."""

    group: str
    topic: str
    dry_run: bool
    queues: tuple[OffsetChange, ...]
    shards: Shards | None = None
