"""Parameters and results of reads: messages by key, queue or time, pulls, scans, traces, lags of
groups, dead letters, segments, the writer's health; and how bodies are inflated.

Used by query and by ``mqstore store dump``; ``StoreReader`` and ``MessageStore`` have the methods.
"""

from mqstore.storage._kernel import (
    LANE_COUNT_MAX,
    MessageForm,
    MessageLane,
    PulledQueue,
    PullLane,
    TimeLane,
    leased_json,
    messages_json,
)
from mqstore.storage.admin.group_lag import GroupLag, GroupLags, QueueLag, TopicLag
from mqstore.storage.codec.compression import compression_of, inflate
from mqstore.storage.lookup.answers import (
    KeyAnswer,
    Pull,
    PullStatus,
    QueueRange,
    ScanRange,
    Slices,
    Unreadable,
)
from mqstore.storage.lookup.bulk import by_message_ids, by_unique_keys
from mqstore.storage.lookup.dead_letters import (
    DeadLetter,
    DeadLetterQuery,
    count_open,
    first_open,
    settled_of,
    unknown_group,
)
from mqstore.storage.lookup.hidden_messages import HiddenKind
from mqstore.storage.lookup.hidden_messages import by_key as hidden_by_key
from mqstore.storage.lookup.hidden_messages import query_text as hidden_query_text
from mqstore.storage.lookup.hidden_messages import topics_of as hidden_topics_of
from mqstore.storage.lookup.key_query import KeyQuery
from mqstore.storage.lookup.log_stream import LogStream
from mqstore.storage.lookup.lookups import TIME_MAX, Lookups
from mqstore.storage.lookup.message_trace import Copy, GroupStand, MessageTraces, Trace
from mqstore.storage.lookup.pull_filter import PullFilter, RetryFilter, SqlFilter, parse_tags
from mqstore.storage.lookup.record_place import RecordPlace
from mqstore.storage.lookup.segment_bytes import SegmentPart
from mqstore.storage.lookup.topic_scan import TopicQuery
from mqstore.storage.lookup.views import Entry
from mqstore.storage.metadata.expired_unread import FollowedExpired
from mqstore.storage.metadata.settled_letters import FollowedSettled
from mqstore.storage.metadata.state_snapshot import Health

__all__ = [
    "LANE_COUNT_MAX",
    "TIME_MAX",
    "Copy",
    "DeadLetter",
    "DeadLetterQuery",
    "Entry",
    "FollowedExpired",
    "FollowedSettled",
    "GroupLag",
    "GroupLags",
    "GroupStand",
    "Health",
    "HiddenKind",
    "KeyAnswer",
    "KeyQuery",
    "LogStream",
    "Lookups",
    "MessageForm",
    "MessageLane",
    "MessageTraces",
    "Pull",
    "PullFilter",
    "PullLane",
    "PullStatus",
    "PulledQueue",
    "QueueLag",
    "QueueRange",
    "RecordPlace",
    "RetryFilter",
    "ScanRange",
    "SegmentPart",
    "Slices",
    "SqlFilter",
    "TimeLane",
    "TopicLag",
    "TopicQuery",
    "Trace",
    "Unreadable",
    "by_message_ids",
    "by_unique_keys",
    "compression_of",
    "count_open",
    "first_open",
    "hidden_by_key",
    "hidden_query_text",
    "hidden_topics_of",
    "inflate",
    "leased_json",
    "messages_json",
    "parse_tags",
    "settled_of",
    "unknown_group",
]
