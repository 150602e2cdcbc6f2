"""Typed client of the mqstore REST API, blocking (``Client``) and asyncio (``AsyncClient``)."""

from mqstore.client.client import AsyncClient, Client
from mqstore.client.consumers import AsyncConsumer, ConsumedMessage, Consumer
from mqstore.client.errors import BufferFull, ClientError, EventUnknown, ProblemError, Unreachable
from mqstore.client.events import StoreEvent, TopicEvent
from mqstore.client.models import Download, Health, NewMessage
from mqstore.client.ordered import AsyncOrderedConsumer, OrderedConsumer
from mqstore.client.producers import AsyncProducer, Delivery, Producer
from mqstore.client.rebuild_calls import part_frames
from mqstore.client.tls import make_tls_context
from mqstore.client.transactional import (
    AsyncTransactionalProducer,
    TransactionalProducer,
    Verdict,
)
from mqstore.wire.checks import Checks, RegisteredProducer, RegisteredProducers
from mqstore.wire.consumers import (
    LeasedMessage,
    ReceiptResult,
    ReceiptResults,
    ReceiptStatus,
    ReceivedMessages,
    WantedMessages,
)
from mqstore.wire.dead_letters import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetters,
    LetterResult,
    LetterStatus,
    PurgedLetters,
    ResendTarget,
    ResentLetters,
)
from mqstore.wire.environment import COORDINATOR_URL, QUERY_URL, WRITER_URL
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
from mqstore.wire.lags import GroupLag, GroupLags, GroupSum, LagStates, TopicLag, TopicSum
from mqstore.wire.members import LeavingQueue, Member, MemberQueue, Members
from mqstore.wire.messages import (
    LookupProblem,
    Message,
    MessageDetail,
    MessageResult,
    Messages,
    MessagesById,
    UnreadableMessage,
)
from mqstore.wire.operation import Target
from mqstore.wire.produce import MessagePlace, ProduceReply
from mqstore.wire.queues import (
    OffsetResult,
    Pull,
    Queue,
    QueueName,
    QueueOffset,
    QueueOffsets,
    Queues,
)
from mqstore.wire.rebuilds import (
    EndedIndexRebuild,
    IndexPart,
    IndexRebuild,
    IndexRebuilds,
    PublishedIndex,
    SegmentRange,
)
from mqstore.wire.replication import Following, Leading, Replica, Replication
from mqstore.wire.retention import Pin, Pins, Retention
from mqstore.wire.segments import LogFile, LogFiles, StoreState
from mqstore.wire.shards import ShardEntry, Shards
from mqstore.wire.stores import (
    DelayLevel,
    DelayLevels,
    FlushReply,
    LongOperation,
    Operations,
    Quarantine,
    QuarantineEntry,
    Recovery,
    Segment,
    Segments,
    Store,
    Writes,
)
from mqstore.wire.times import format_time, parse_time
from mqstore.wire.topics import Topic, TopicDeletion, Topics
from mqstore.wire.traces import MessageCopy, MessageTrace, Trace, Traces
from mqstore.wire.transactions import BegunTransaction, Transaction, Transactions

__all__ = [
    "COORDINATOR_URL",
    "QUERY_URL",
    "WRITER_URL",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncOrderedConsumer",
    "AsyncProducer",
    "AsyncTransactionalProducer",
    "BegunTransaction",
    "BufferFull",
    "Checks",
    "Client",
    "ClientError",
    "ConsumedMessage",
    "Consumer",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetters",
    "DelayLevel",
    "DelayLevels",
    "Delivery",
    "Download",
    "EndedIndexRebuild",
    "EventUnknown",
    "FlushReply",
    "Following",
    "Group",
    "GroupLag",
    "GroupLags",
    "GroupOffset",
    "GroupOffsets",
    "GroupSum",
    "Groups",
    "Health",
    "IndexPart",
    "IndexRebuild",
    "IndexRebuilds",
    "LagStates",
    "Leading",
    "LeasedMessage",
    "LeavingQueue",
    "LetterResult",
    "LetterStatus",
    "LogFile",
    "LogFiles",
    "LongOperation",
    "LookupProblem",
    "Member",
    "MemberQueue",
    "Members",
    "Message",
    "MessageCopy",
    "MessageDetail",
    "MessagePlace",
    "MessageResult",
    "MessageTrace",
    "Messages",
    "MessagesById",
    "NewMessage",
    "OffsetChange",
    "OffsetResult",
    "OffsetsReset",
    "Operations",
    "OrderedConsumer",
    "Pin",
    "Pins",
    "ProblemError",
    "ProduceReply",
    "Producer",
    "PublishedIndex",
    "Pull",
    "PurgedLetters",
    "Quarantine",
    "QuarantineEntry",
    "Queue",
    "QueueName",
    "QueueOffset",
    "QueueOffsets",
    "Queues",
    "ReceiptResult",
    "ReceiptResults",
    "ReceiptStatus",
    "ReceivedMessages",
    "Recovery",
    "RegisteredProducer",
    "RegisteredProducers",
    "Replica",
    "Replication",
    "ResendTarget",
    "ResentLetters",
    "Retention",
    "Segment",
    "SegmentRange",
    "Segments",
    "ShardEntry",
    "Shards",
    "Store",
    "StoreEvent",
    "StoreState",
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
    "TransactionalProducer",
    "Transactions",
    "Unreachable",
    "UnreadableMessage",
    "Verdict",
    "WantedMessages",
    "Writes",
    "format_time",
    "make_tls_context",
    "parse_time",
    "part_frames",
]
