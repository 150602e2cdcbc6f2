"""What the services answer about consumer groups: offsets, lags, subscriptions, messages' ways.

``shard`` is None where a release answers that did not tell it.
"""

from __future__ import annotations

from typing import Any

from mqstore.client.models import Model, Shards, Unreadable


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


class OffsetsSource(Model):
    """What groups' offsets were taken from, and when that was saved (ms)."""

    source: str
    saved_at: int | None
    age_ms: int | None
    writer: str


class QueueLag(Model):
    """Where a group stands in one queue; ``lag_ms`` is None when nobody can tell."""

    queue_id: int
    shard: int | None = None
    committed: int | None
    min_offset: int
    max_offset: int
    lag: int
    expired: int
    lag_ms: int | None
    next_store_timestamp: int | None
    last_store_timestamp: int | None


class TopicLag(Model):
    """Where a group stands in one topic; ``queues`` only where one group was asked for."""

    topic: str
    lag: int
    expired: int
    lag_ms: int | None
    queues: tuple[QueueLag, ...] = ()


class GroupSum(Model):
    group: str
    lag: int
    dead_letters: int
    topics: tuple[TopicLag, ...]


class GroupLags(Model):
    """Groups by name; ``next`` is the cursor to go on with."""

    groups: tuple[GroupSum, ...]
    next: str | None
    offsets: OffsetsSource
    shard: int | None
    shards: Shards | None = None


class GroupLag(GroupSum):
    """One group, by topic and queue."""

    offsets: OffsetsSource
    shard: int | None
    shards: Shards | None = None


class GroupStand(Model):
    """Whether a group's committed offset is past a copy of a message."""

    group: str
    committed: int | None
    consumed: bool


class MessageCopy(Model):
    """One record of a message; kinds and states are those of the OpenAPI document."""

    kind: str
    state: str
    why: str
    group: str | None
    due_at: int | None
    topic: str
    shard: int | None = None
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    offset_msg_id: str
    origin_message_id: str | None = None
    """Of one that was sent back: the copy that the group got first."""
    store_timestamp: int
    store_host: str
    reconsume_times: int
    segment: str | None
    in_queue: bool
    groups: tuple[GroupStand, ...]
    checked_by: str | None = None
    """See ``Message.checked_by``."""


class Trace(Model):
    """All copies of one message that are in the log, oldest first."""

    topic: str
    uniq_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    born_timestamp: int
    born_host: str
    copies: tuple[MessageCopy, ...]
    unreadable: tuple[Unreadable, ...]
    complete: bool


class MessageTrace(Model):
    trace: Trace
    offsets: OffsetsSource
    shard: int | None
    shards: Shards | None = None


class Traces(Model):
    """The ways of messages with a key; ``next`` is the cursor to go on with."""

    traces: tuple[Trace, ...]
    next: str | None
    complete: bool
    offsets: OffsetsSource
    shard: int | None
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
