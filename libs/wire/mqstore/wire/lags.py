"""Lags of consumer groups."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire import problems
from mqstore.wire.base import Milliseconds, NewerInteger, Reply
from mqstore.wire.examples import lags as examples
from mqstore.wire.limits import COUNT_MAX
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import ListParameters, Parameters, Shown
from mqstore.wire.shards import OfShards

Lag = Annotated[int, Field(description="Messages that are still to be consumed.")]
Expired = Annotated[
    int,
    Field(
        description="Messages that expired before the group came to them: RocketMQ's diff counts "
        "them too."
    ),
]
ExpiredTotal = Annotated[
    NewerInteger,
    Field(
        description="Messages that expired before the group came to them, in all: `expired`, and "
        "those that its offset has passed since."
    ),
]
Age = Annotated[
    int | None,
    Field(
        description="How long the oldest message that is to be consumed has been stored: 0 without "
        "any, null when it cannot be read."
    ),
]
OneShard = Annotated[int | None, Field(description="null: it is over all of `shards`.")]
DeadLetterCount = Annotated[
    int, Field(description="Messages of %DLQ%GROUP that were not resent or purged.")
]


class OffsetsSource(Reply, title="OffsetsSourceView"):
    """The source of the groups' offsets."""

    source: Annotated[
        str,
        Field(
            description="writer: store-writer's memory; file: consumerOffset.json; "
            "backup: its .bak, as it cannot be read itself; none: there is neither."
        ),
    ]
    saved_at: Annotated[
        Milliseconds | None,
        Field(
            description="When the file was last written. A writer that is alive writes what was "
            "committed within flushConsumerOffsetInterval."
        ),
    ]
    age_ms: int | None
    writer: Annotated[
        str,
        Field(
            description="alive, recovering, unresponsive or down: then commits since savedAt may "
            "be lost."
        ),
    ]


class QueueLag(Reply, title="QueueLagView"):
    """The lag of a group in one queue."""

    queue_id: int
    shard: NewerInteger = None
    committed: Annotated[
        int | None, Field(description="The next message to consume; null: never committed.")
    ]
    min_offset: int
    max_offset: int
    lag: Lag
    expired: Expired
    lag_ms: Age
    next_store_timestamp: Annotated[
        Milliseconds | None, Field(description="Of the next message to consume.")
    ]
    last_store_timestamp: Annotated[
        Milliseconds | None, Field(description="Of the last message that was consumed.")
    ]


class TopicSum(Reply, title="TopicLagView"):
    """The lag of a group in one topic, over its queues."""

    topic: str
    lag: Lag
    expired: Expired
    expired_total: ExpiredTotal = None
    lag_ms: Age


class TopicLag(TopicSum, title="TopicQueuesLagView"):
    """The lag of a group in one topic, by queue."""

    queues: tuple[QueueLag, ...]


class LagStates(Reply, title="LagStatesView"):
    """The lag of a group by the states of its messages, over the topics of the reply.

    `lag` is the sum of waiting, leased, retrying and acknowledged.
    """

    waiting: Annotated[
        int, Field(description="To be delivered, for the first time or after a lease expired.")
    ]
    leased: Annotated[int, Field(description="Leased to consumers now.")]
    retrying: Annotated[
        int, Field(description="To be delivered again, since a consumer returned them.")
    ]
    acknowledged: Annotated[
        int,
        Field(
            description="Acknowledged or filtered out, behind one that is not: the group's offset"
            " is in front of them."
        ),
    ]
    delayed: Annotated[
        int | None,
        Field(
            description="Returned, until their delay ends; not in `lag` yet. null: too many delayed"
            " messages wait to count them."
        ),
    ]


States = Annotated[
    LagStates | None,
    Field(description="null while store-writer, which has the leases, does not reply."),
]


class GroupSum(Reply, title="GroupSumView"):
    """The lag of a group, by topic."""

    group: str
    lag: Lag
    dead_letters: DeadLetterCount
    states: States = None
    topics: tuple[TopicSum, ...]


class GroupLags(OfShards, title="GroupLagsView"):
    """The lags of groups, by name."""

    groups: tuple[GroupSum, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    offsets: OffsetsSource
    shard: OneShard


class GroupLag(OfShards, title="GroupLagView"):
    """The lag of a group, by topic and queue."""

    group: str
    lag: Lag
    dead_letters: DeadLetterCount
    states: States = None
    topics: tuple[TopicLag, ...]
    offsets: OffsetsSource
    shard: OneShard


OfTopic = Annotated[
    str | None,
    Field(
        max_length=255,
        description="Only this topic.",
    ),
    Shown("a topic", "orders"),
]


class LagParameters(Parameters):
    """The topic of a lag."""

    topic: OfTopic = None


class LagsParameters(ListParameters):
    """A page of lags."""

    topic: OfTopic = None
    limit: Annotated[
        int, Field(ge=1, le=COUNT_MAX, description="Maximum number of groups in the reply.")
    ] = 100


LAGS: Final = Operation(
    name="lags",
    targets=(Target.QUERY,),
    path="/v1/lag",
    role=Role.CONSUME,
    summary="How far all groups are behind",
    tag="groups",
    query=LagsParameters,
    reply=GroupLags,
    example=examples.LAGS,
    problems=(problems.BAD_CURSOR,),
)
LAG: Final = Operation(
    name="lag",
    targets=(Target.QUERY,),
    path="/v1/groups/{group}/lag",
    role=Role.CONSUME,
    summary="How far a group is behind, by topic and queue",
    tag="groups",
    query=LagParameters,
    reply=GroupLag,
    example=examples.LAG,
    problems=(problems.GROUP_UNKNOWN, problems.GROUP_INVALID, problems.TOPIC_UNKNOWN),
)
