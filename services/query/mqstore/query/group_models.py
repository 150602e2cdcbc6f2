"""What the query service answers about consumer groups."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta

from mqstore.query.models import Milliseconds, OfShards

Lag = Annotated[int, Meta(description="Messages that are still to be consumed.")]
Expired = Annotated[
    int,
    Meta(
        description="Messages that expired before the group came to them: RocketMQ's diff counts "
        "them too."
    ),
]
Age = Annotated[
    int | None,
    Meta(
        description="How long the oldest message that is to be consumed has been stored: 0 without "
        "any, null when it cannot be read."
    ),
]


OneShard = Annotated[int | None, Meta(description="null: it is over all of `shards`.")]


class OffsetsSourceView(msgspec.Struct, rename="camel", gc=False):
    """What groups' offsets were taken from."""

    source: Annotated[
        str,
        Meta(
            description="writer: store-writer's memory; file: consumerOffset.json; "
            "backup: its .bak, as it cannot be read itself; none: there is neither."
        ),
    ]
    saved_at: Annotated[
        Milliseconds | None,
        Meta(
            description="When the file was last written. A writer that is alive writes what was "
            "committed within flushConsumerOffsetInterval."
        ),
    ]
    age_ms: int | None
    writer: Annotated[
        str,
        Meta(description="alive, recovering or down: then commits since savedAt may be lost."),
    ]


class QueueLagView(msgspec.Struct, rename="camel", gc=False):
    """Where a group stands in one queue."""

    queue_id: int
    shard: int
    committed: Annotated[
        int | None, Meta(description="The next message to consume; null: never committed.")
    ]
    min_offset: int
    max_offset: int
    lag: Lag
    expired: Expired
    lag_ms: Age
    next_store_timestamp: Annotated[
        Milliseconds | None, Meta(description="Of the next message to consume.")
    ]
    last_store_timestamp: Annotated[
        Milliseconds | None, Meta(description="Of the last message that was consumed.")
    ]


class TopicLagView(msgspec.Struct, rename="camel", gc=False):
    """Where a group stands in one topic, over its queues."""

    topic: str
    lag: Lag
    expired: Expired
    lag_ms: Age


class TopicQueuesLagView(msgspec.Struct, rename="camel", gc=False):
    """Where a group stands in one topic, by queue."""

    topic: str
    lag: Lag
    expired: Expired
    lag_ms: Age
    queues: list[QueueLagView]


class GroupSumView(msgspec.Struct, rename="camel", gc=False):
    """One group, over its topics."""

    group: str
    lag: Lag
    dead_letters: Annotated[int, Meta(description="Messages in %DLQ%GROUP.")]
    topics: list[TopicLagView]


class GroupLagsView(msgspec.Struct, rename="camel", gc=False):
    """Groups by name."""

    groups: list[GroupSumView]
    next: Annotated[str | None, Meta(description="The cursor to go on with.")]
    offsets: OffsetsSourceView
    shard: OneShard
    shards: OfShards = UNSET


class GroupLagView(msgspec.Struct, rename="camel", gc=False):
    """One group, by topic and queue."""

    group: str
    lag: Lag
    dead_letters: Annotated[int, Meta(description="Messages in %DLQ%GROUP.")]
    topics: list[TopicQueuesLagView]
    offsets: OffsetsSourceView
    shard: OneShard
    shards: OfShards = UNSET


SCHEMAS: Final = (GroupLagsView, GroupLagView)
