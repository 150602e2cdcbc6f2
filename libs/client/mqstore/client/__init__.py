"""Typed client of the mqstore REST API, blocking (``Client``) and asyncio (``AsyncClient``)."""

from mqstore.client.client import (
    COORDINATOR_URL,
    QUERY_URL,
    WRITER_URL,
    AsyncClient,
    Client,
    trusting,
)
from mqstore.client.errors import ClientError, EventUnknown, ProblemError, Unreachable
from mqstore.client.events import StoreEvent, TopicEvent
from mqstore.client.models import Download, Health, NewMessage
from mqstore.client.rebuild_calls import part_frames
from mqstore.wire.groups import (
    Group,
    GroupOffset,
    GroupOffsets,
    Groups,
    OffsetChange,
    OffsetsReset,
    Subscription,
    Subscriptions,
)
from mqstore.wire.lags import GroupLag, GroupLags, TopicLag, TopicSum
from mqstore.wire.messages import Message, MessageDetail, Messages, Unreadable
from mqstore.wire.operation import Target
from mqstore.wire.produce import Placed, Produced
from mqstore.wire.queues import Pull, Queue, QueueOffset, Queues
from mqstore.wire.rebuilds import (
    IndexPart,
    IndexPublished,
    IndexRebuild,
    IndexRebuildEnded,
    IndexRebuilds,
    SegmentRange,
)
from mqstore.wire.retention import Pin, Pins, Retention
from mqstore.wire.segments import LogFile, LogFiles
from mqstore.wire.shards import ShardEntry, Shards
from mqstore.wire.stores import (
    DelayLevel,
    DelayLevels,
    Flushed,
    Recovery,
    Segment,
    Segments,
    Store,
    Writes,
)
from mqstore.wire.topics import Topic, TopicDeletion, Topics
from mqstore.wire.traces import MessageCopy, MessageTrace, Trace, Traces
from mqstore.wire.transactions import (
    Begun,
    Checks,
    Producer,
    Producers,
    Transaction,
    Transactions,
)

__all__ = [
    "COORDINATOR_URL",
    "QUERY_URL",
    "WRITER_URL",
    "AsyncClient",
    "Begun",
    "Checks",
    "Client",
    "ClientError",
    "DelayLevel",
    "DelayLevels",
    "Download",
    "EventUnknown",
    "Flushed",
    "Group",
    "GroupLag",
    "GroupLags",
    "GroupOffset",
    "GroupOffsets",
    "Groups",
    "Health",
    "IndexPart",
    "IndexPublished",
    "IndexRebuild",
    "IndexRebuildEnded",
    "IndexRebuilds",
    "LogFile",
    "LogFiles",
    "Message",
    "MessageCopy",
    "MessageDetail",
    "MessageTrace",
    "Messages",
    "NewMessage",
    "OffsetChange",
    "OffsetsReset",
    "Pin",
    "Pins",
    "Placed",
    "ProblemError",
    "Produced",
    "Producer",
    "Producers",
    "Pull",
    "Queue",
    "QueueOffset",
    "Queues",
    "Recovery",
    "Retention",
    "Segment",
    "SegmentRange",
    "Segments",
    "ShardEntry",
    "Shards",
    "Store",
    "StoreEvent",
    "Subscription",
    "Subscriptions",
    "Target",
    "Topic",
    "TopicDeletion",
    "TopicEvent",
    "TopicLag",
    "TopicSum",
    "Topics",
    "Trace",
    "Traces",
    "Transaction",
    "Transactions",
    "Unreachable",
    "Unreadable",
    "Writes",
    "part_frames",
    "trusting",
]
