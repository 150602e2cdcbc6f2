"""Typed client of the mqstore REST API, blocking (``Client``) and asyncio (``AsyncClient``).

A name is imported at its first use: a command of the command line uses few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqstore.client.async_client import AsyncClient
    from mqstore.client.client import Client
    from mqstore.client.consumers import AsyncConsumer, ConsumedMessage, Consumer
    from mqstore.client.errors import (
        BufferFull,
        ClientError,
        EventUnknown,
        ProblemError,
        Unreachable,
    )
    from mqstore.client.events import StoreEvent, TopicEvent
    from mqstore.client.models import Download, Health
    from mqstore.client.new_message import NewMessage
    from mqstore.client.ordered import AsyncOrderedConsumer, OrderedConsumer
    from mqstore.client.pages import every_page
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
    from mqstore.wire.findings import Finding, Findings
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
    from mqstore.wire.key_shards import KeyShards
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
    from mqstore.wire.replication import (
        Election,
        Following,
        Leading,
        Replica,
        Replication,
        Switchover,
    )
    from mqstore.wire.retention import Pin, Pins, Retention
    from mqstore.wire.segments import LogFile, LogFiles, StoreState
    from mqstore.wire.settings import Setting, SettingList
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
    "Election",
    "EndedIndexRebuild",
    "EventUnknown",
    "Finding",
    "Findings",
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
    "KeyShards",
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
    "Setting",
    "SettingList",
    "ShardEntry",
    "Shards",
    "Store",
    "StoreEvent",
    "StoreState",
    "Subscription",
    "Subscriptions",
    "Switchover",
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
    "every_page",
    "format_time",
    "make_tls_context",
    "parse_time",
    "part_frames",
]

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "mqstore.client.async_client": ("AsyncClient",),
    "mqstore.client.client": ("Client",),
    "mqstore.client.consumers": (
        "AsyncConsumer",
        "ConsumedMessage",
        "Consumer",
    ),
    "mqstore.client.errors": (
        "BufferFull",
        "ClientError",
        "EventUnknown",
        "ProblemError",
        "Unreachable",
    ),
    "mqstore.client.events": (
        "StoreEvent",
        "TopicEvent",
    ),
    "mqstore.client.models": (
        "Download",
        "Health",
    ),
    "mqstore.client.new_message": ("NewMessage",),
    "mqstore.client.ordered": (
        "AsyncOrderedConsumer",
        "OrderedConsumer",
    ),
    "mqstore.client.producers": (
        "AsyncProducer",
        "Delivery",
        "Producer",
    ),
    "mqstore.client.rebuild_calls": ("part_frames",),
    "mqstore.client.pages": ("every_page",),
    "mqstore.client.tls": ("make_tls_context",),
    "mqstore.client.transactional": (
        "AsyncTransactionalProducer",
        "TransactionalProducer",
        "Verdict",
    ),
    "mqstore.wire.checks": (
        "Checks",
        "RegisteredProducer",
        "RegisteredProducers",
    ),
    "mqstore.wire.consumers": (
        "LeasedMessage",
        "ReceiptResult",
        "ReceiptResults",
        "ReceiptStatus",
        "ReceivedMessages",
        "WantedMessages",
    ),
    "mqstore.wire.dead_letters": (
        "DeadLetter",
        "DeadLetterFilter",
        "DeadLetters",
        "LetterResult",
        "LetterStatus",
        "PurgedLetters",
        "ResendTarget",
        "ResentLetters",
    ),
    "mqstore.wire.environment": (
        "COORDINATOR_URL",
        "QUERY_URL",
        "WRITER_URL",
    ),
    "mqstore.wire.findings": (
        "Finding",
        "Findings",
    ),
    "mqstore.wire.groups": (
        "Group",
        "GroupOffset",
        "GroupOffsets",
        "Groups",
        "OffsetChange",
        "OffsetsReset",
        "Subscription",
        "Subscriptions",
    ),
    "mqstore.wire.key_shards": ("KeyShards",),
    "mqstore.wire.lags": (
        "GroupLag",
        "GroupLags",
        "GroupSum",
        "LagStates",
        "TopicLag",
        "TopicSum",
    ),
    "mqstore.wire.members": (
        "LeavingQueue",
        "Member",
        "MemberQueue",
        "Members",
    ),
    "mqstore.wire.messages": (
        "LookupProblem",
        "Message",
        "MessageDetail",
        "MessageResult",
        "Messages",
        "MessagesById",
        "UnreadableMessage",
    ),
    "mqstore.wire.operation": ("Target",),
    "mqstore.wire.produce": (
        "MessagePlace",
        "ProduceReply",
    ),
    "mqstore.wire.queues": (
        "OffsetResult",
        "Pull",
        "Queue",
        "QueueName",
        "QueueOffset",
        "QueueOffsets",
        "Queues",
    ),
    "mqstore.wire.rebuilds": (
        "EndedIndexRebuild",
        "IndexPart",
        "IndexRebuild",
        "IndexRebuilds",
        "PublishedIndex",
        "SegmentRange",
    ),
    "mqstore.wire.replication": (
        "Election",
        "Following",
        "Leading",
        "Replica",
        "Replication",
        "Switchover",
    ),
    "mqstore.wire.retention": (
        "Pin",
        "Pins",
        "Retention",
    ),
    "mqstore.wire.segments": (
        "LogFile",
        "LogFiles",
        "StoreState",
    ),
    "mqstore.wire.settings": (
        "Setting",
        "SettingList",
    ),
    "mqstore.wire.shards": (
        "ShardEntry",
        "Shards",
    ),
    "mqstore.wire.stores": (
        "DelayLevel",
        "DelayLevels",
        "FlushReply",
        "LongOperation",
        "Operations",
        "Quarantine",
        "QuarantineEntry",
        "Recovery",
        "Segment",
        "Segments",
        "Store",
        "Writes",
    ),
    "mqstore.wire.times": (
        "format_time",
        "parse_time",
    ),
    "mqstore.wire.topics": (
        "Topic",
        "TopicDeletion",
        "Topics",
    ),
    "mqstore.wire.traces": (
        "MessageCopy",
        "MessageTrace",
        "Trace",
        "Traces",
    ),
    "mqstore.wire.transactions": (
        "BegunTransaction",
        "Transaction",
        "Transactions",
    ),
}
"""The names that each module defines."""
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """A name of ``__all__``, imported at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
