"""The table of what brokers of 4.9.7 and 5.4.0 leave in a store directory.

Source: StorePathConfigHelper, BrokerPathConfigHelper, TopicValidator, PopAckConstants, KeyBuilder,
TopicAttributes, SubscriptionGroupConfig, the config managers, TimerWheel, CompactionStore,
MessageRocksDBStorage, PopConsumerService, DefaultMetadataStore, DLedgerCommitLog and
MessageStoreConfig of both versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """How a state is taken over; the JSON name is stable."""

    READ = "read"
    """Served, continued, and handed back as the broker left it."""
    REFUSED = "refused"
    """The store is not opened for writing."""
    NAMED = "named"
    """The store is served without it; reported at the opening, by verify and by info."""


class Subject(StrEnum):
    """The part of a store that a state is found in."""

    FILE = "file"
    """A file or directory, by its path below the root."""
    TOPIC = "topic"
    """A topic of ``topics.json``, by its name."""
    TOPIC_ATTRIBUTE = "topic attribute"
    """``name=value`` of a topic."""
    GROUP_FIELD = "group field"
    """A member of a group of ``subscriptionGroup.json``."""


class Content(StrEnum):
    """The content that a file of a state must have."""

    ANY = "any"
    FILES = "files"
    """A directory with a file in it, at any depth."""
    ROCKSDB = "rocksdb"
    """A RocksDB with a table or with a write-ahead log that is not empty."""
    MEMBERS = "members"
    """JSON in which one of ``State.members`` is not empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state of the table."""

    name: str
    """A stable word for errors, findings and documents."""
    subject: Subject
    pattern: str
    """A regular expression for the whole path, name or ``name=value``."""
    shown: str
    """The same for people."""
    versions: str = "4.9, 5.x"
    holds: str
    verdict: Verdict
    action: str
    """The work of mqstore (read), the way to convert the state (refused), or the lack (named)."""
    content: Content = Content.ANY
    members: tuple[str, ...] = ()

    def matches(self, text: str) -> bool:
        """Whether a path, name or attribute is of this state."""
        return re.fullmatch(self.pattern, text) is not None


def _file(
    name: str,
    shown: str,
    holds: str,
    action: str = "continued",
    *,
    pattern: str = "",
    **more: object,
) -> State:
    options: dict[str, object] = {"verdict": Verdict.READ, **more}
    return State(
        name=name,
        subject=Subject.FILE,
        pattern=pattern or re.escape(shown),
        shown=shown,
        holds=holds,
        action=action,
        **options,  # type: ignore[arg-type] # fields of State
    )


_COPIES: Final = r"(\.bak|\.tmp)?"
_V5: Final = "5.x"
_REFUSED: Final = {"verdict": Verdict.REFUSED, "versions": _V5}
_NAMED: Final = {"verdict": Verdict.NAMED, "versions": _V5}
_EXPORT: Final = (
    "let RocketMQ write them to config/*.json with `mqadmin rocksDBConfigToJson`, then remove the "
    "directory"
)

_FILES: Final = (
    _file("commit-log", "commitlog", "the messages"),
    _file("queues", "consumequeue", "the queues' entries"),
    _file(
        "queues-in-rocksdb",
        "consumequeue/CURRENT",
        "the queues of storeType=defaultRocksDB",
        "start its broker once with storeType=default, which makes files of the log's messages; "
        "stop it, and remove the RocksDB files from consumequeue/",
        **_REFUSED,
    ),
    _file(
        "transactions-in-rocksdb",
        "consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "half messages of transRocksDBEnable=true",
        "those that are pending are not checked: decide them with the broker first",
        content=Content.FILES,
        **_NAMED,
    ),
    _file("filter-bitmaps", "consumequeue_ext", "bit maps of filters"),
    _file("index", "index", "the index of keys", pattern="index"),
    _file("checkpoint", "checkpoint", "how far the files are on disk"),
    _file("abort", "abort", "the mark of a store in use", pattern=r"abort(\.bak)?"),
    _file("lock", "lock", "the lock of the process that has the store"),
    _file("timer-wheel", "timerwheel", "messages with a time, by second", versions=_V5),
    _file("timer-log", "timerlog", "messages with a time", versions=_V5),
    _file(
        "timer-snapshot",
        "timerwheel.N",
        "the timer wheel of timerWheelSnapshotFlush=true",
        "start its broker once with timerWheelSnapshotFlush=false and stop it, which writes "
        "timerwheel; then remove the snapshots",
        pattern=r"timerwheel\.\d+(\.tmp)?",
        **_REFUSED,
    ),
    _file("topics", "config/topics.json", "topics", pattern=rf"config/topics\.json{_COPIES}"),
    _file(
        "groups",
        "config/subscriptionGroup.json",
        "consumer groups",
        pattern=rf"config/subscriptionGroup\.json{_COPIES}",
    ),
    _file(
        "offsets",
        "config/consumerOffset.json",
        "offsets of groups",
        pattern=rf"config/consumerOffset\.json{_COPIES}",
    ),
    _file(
        "lmq-offsets",
        "config/lmqConsumerOffset.json",
        "offsets of groups of a broker with enableLmq",
        "continued in the same file, and enableLmq is on unless it is set",
        pattern=rf"config/lmqConsumerOffset\.json{_COPIES}",
    ),
    _file(
        "filters",
        "config/consumerFilter.json",
        "filters of subscriptions",
        pattern=rf"config/consumerFilter\.json{_COPIES}",
    ),
    _file(
        "delay-offsets",
        "config/delayOffset.json",
        "how far delay levels are delivered",
        pattern=rf"config/delayOffset\.json{_COPIES}",
    ),
    _file(
        "timer-progress",
        "config/timercheck",
        "how far messages with a time are delivered",
        pattern=rf"config/timercheck{_COPIES}",
        versions=_V5,
    ),
    _file(
        "counters",
        "config/timermetrics, config/transactionMetrics",
        "counters for metrics",
        "left unchanged; a broker counts anew",
        pattern=rf"config/(timermetrics|transactionMetrics){_COPIES}",
        versions=_V5,
    ),
    _file(
        "static-topics",
        "config/topicQueueMapping.json",
        "topics whose queues are mapped over brokers",
        "make the topics anew as ordinary ones: the mapped queue numbers are in no record",
        pattern=r"config/topicQueueMapping\.json",
        content=Content.MEMBERS,
        members=("topicQueueMappingInfoMap",),
        **_REFUSED,
    ),
    _file(
        "static-topics-none",
        "config/topicQueueMapping.json without a topic",
        "no mapping",
        "left unchanged",
        pattern=rf"config/topicQueueMapping\.json{_COPIES}",
        versions=_V5,
    ),
    _file(
        "ordered-pop",
        "config/consumerOrderInfo.json",
        "messages that ordered POP consumers hold",
        "they are delivered again, as after a restart of the broker with the time elapsed",
        pattern=r"config/consumerOrderInfo\.json",
        content=Content.MEMBERS,
        members=("table",),
        **_NAMED,
    ),
    _file(
        "ordered-pop-none",
        "config/consumerOrderInfo.json without a message",
        "nothing",
        "left unchanged",
        pattern=rf"config/consumerOrderInfo\.json{_COPIES}",
        versions=_V5,
    ),
    _file(
        "request-modes",
        "config/messageRequestMode.json",
        "which groups are to use POP",
        "consumers over REST do not need it; a broker finds it as it was",
        pattern=r"config/messageRequestMode\.json",
        content=Content.MEMBERS,
        members=("messageRequestModeMap",),
        **_NAMED,
    ),
    _file(
        "request-modes-none",
        "config/messageRequestMode.json without a group",
        "nothing",
        "left unchanged",
        pattern=rf"config/messageRequestMode\.json{_COPIES}",
        versions=_V5,
    ),
    _file(
        "tables-in-rocksdb",
        "config/topics/, subscriptionGroups/, consumerOffsets/, metadata/, rdb/",
        "topics, groups and offsets of a broker that keeps them in RocksDB",
        _EXPORT,
        pattern=r"config/(topics|subscriptionGroups|consumerOffsets|metadata|rdb)",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "tables-in-rocksdb-none",
        "the same directories, empty",
        "nothing",
        "left unchanged",
        pattern=r"config/(topics|subscriptionGroups|consumerOffsets|metadata|rdb)",
        versions=_V5,
    ),
    _file(
        "acl",
        "config/users, config/acls",
        "users and rules of ACL 2.0",
        "mqstore does not apply them: give applications its own tokens",
        pattern=r"config/(users|acls)",
        **_NAMED,
    ),
    _file(
        "tiered",
        "config/tieredStoreMetadata.json",
        "messages in tiered storage",
        "messages older than the log are in the tier alone: read them through the broker first, "
        "let it delete the tier (tieredStoreFileReservedTime), then remove the file",
        pattern=r"config/tieredStoreMetadata\.json",
        content=Content.MEMBERS,
        members=(
            "commitLogFileSegmentTable",
            "consumeQueueFileSegmentTable",
            "indexFileSegmentTable",
        ),
        **_REFUSED,
    ),
    _file(
        "tiered-none",
        "config/tieredStoreMetadata.json without a segment",
        "nothing",
        "left unchanged",
        pattern=rf"config/tieredStoreMetadata\.json{_COPIES}",
        versions=_V5,
    ),
    _file(
        "broker-properties",
        "config/broker.properties",
        "settings of a broker",
        "hand them to store-writer as its settings file",
        pattern=rf"config/broker\.properties{_COPIES}",
        verdict=Verdict.NAMED,
    ),
    _file(
        "batch-queues",
        "batchconsumequeue",
        "queues of topics with queue.type=BatchCQ",
        "consume these topics with the broker, and make them anew with queue.type=SimpleCQ",
        content=Content.FILES,
        **_REFUSED,
    ),
    _file(
        "batch-queues-none",
        "batchconsumequeue, empty",
        "nothing",
        "left unchanged",
        pattern="batchconsumequeue",
        versions=_V5,
    ),
    _file(
        "compaction",
        "compaction/compactionLog",
        "the newest message of each key of topics with cleanup.policy=COMPACTION",
        "consume these topics with the broker, and make them anew with cleanup.policy=DELETE",
        content=Content.FILES,
        **_REFUSED,
    ),
    _file(
        "compaction-none",
        "compaction",
        "how far topics are compacted: none is",
        "left unchanged",
        versions=_V5,
    ),
    _file(
        "timers-in-rocksdb",
        "rocksdbstore",
        "timed messages, half messages or the index of a broker that keeps them in RocksDB",
        "start its broker once with timerRocksDBEnable=false, transRocksDBEnable=false and "
        "indexRocksDBEnable=false until they are delivered; then remove the directory",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "rocksdb-none",
        "rocksdbstore, empty",
        "nothing",
        "left unchanged",
        pattern="rocksdbstore",
        versions=_V5,
    ),
    _file(
        "pop-in-rocksdb",
        "kvStore",
        "what POP consumers have taken, of popConsumerKVServiceEnable=true",
        "let its broker write them to the log, by `mqadmin exportPopRecord` with "
        "popConsumerKVServiceEnable=false; then remove the directory",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "pop-in-rocksdb-none",
        "kvStore, empty",
        "nothing",
        "left unchanged",
        pattern="kvStore",
        versions=_V5,
    ),
    _file(
        "dledger",
        "dledger-NAME",
        "the log of a DLedger group",
        "its records have another format, which no other broker reads either: send them to "
        "mqstore by a consumer of the group",
        pattern=r"dledger-.+",
        content=Content.FILES,
        verdict=Verdict.REFUSED,
    ),
    _file(
        "controller",
        "epochFileCheckpoint, brokerIdentity",
        "epochs and identity of a broker under a controller",
        "mqstore has epochs of its own; a controller gives the broker new ones",
        pattern=r"(epochFileCheckpoint|brokerIdentity|brokerIdentity-temp)(\.bak|-\d+)?",
        **_NAMED,
    ),
    _file(
        "transactions-of-3",
        "transaction",
        "transactions of RocketMQ 3",
        "no version from 4 on reads it",
        verdict=Verdict.NAMED,
        content=Content.FILES,
    ),
    _file(
        "file-system",
        "lost+found",
        "what the file system's check found",
        "left unchanged",
    ),
    _file(
        "lmq-store",
        "lmqstore",
        "queues of RocketMQ-MQTT",
        "no broker of 4.9.7 or 5.4.0 reads it",
        verdict=Verdict.NAMED,
        content=Content.FILES,
    ),
    _file("lmq-store-none", "lmqstore, empty", "nothing", "left unchanged", pattern="lmqstore"),
    _file(
        "ours",
        "mqstore",
        "files of mqstore's own",
        pattern=r"mqstore|.+\.mqstore(-staging)?|timerwheel\.tmp",
    ),
)

_TOPICS: Final = (
    State(
        name="delay-topic",
        subject=Subject.TOPIC,
        pattern="SCHEDULE_TOPIC_XXXX",
        shown="SCHEDULE_TOPIC_XXXX",
        holds="messages with a delay level",
        verdict=Verdict.READ,
        action="delivered",
    ),
    State(
        name="timer-topic",
        subject=Subject.TOPIC,
        pattern="rmq_sys_wheel_timer",
        shown="rmq_sys_wheel_timer",
        versions=_V5,
        holds="messages with a time",
        verdict=Verdict.READ,
        action="delivered",
    ),
    State(
        name="transaction-topics",
        subject=Subject.TOPIC,
        pattern="RMQ_SYS_TRANS_(OP_)?HALF_TOPIC|TRANS_CHECK_MAX_TIME_TOPIC",
        shown="RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC",
        holds="half messages, decisions, and what was checked too often",
        verdict=Verdict.READ,
        action="continued",
    ),
    State(
        name="trace-topic",
        subject=Subject.TOPIC,
        pattern="RMQ_SYS_TRACE_TOPIC|rmq_sys_TRACE_DATA_.+",
        shown="RMQ_SYS_TRACE_TOPIC, rmq_sys_TRACE_DATA_REGION",
        holds="traces that clients sent",
        verdict=Verdict.READ,
        action="served as messages",
    ),
    State(
        name="broker-topics",
        subject=Subject.TOPIC,
        pattern="TBW102|BenchmarkTest|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|CHECKPOINT_TOPIC"
        "|rmq_sys_SYNC_BROKER_MEMBER_.+|.+_REPLY_TOPIC|RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC",
        shown="TBW102, BenchmarkTest, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, CHECKPOINT_TOPIC, "
        "rmq_sys_SYNC_BROKER_MEMBER_NAME, CLUSTER_REPLY_TOPIC, "
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC, and topics named "
        "as broker and cluster",
        holds="templates and notes of a broker",
        verdict=Verdict.READ,
        action="kept",
    ),
    State(
        name="pop-revive",
        subject=Subject.TOPIC,
        pattern="rmq_sys_REVIVE_LOG_.+",
        shown="rmq_sys_REVIVE_LOG_CLUSTER",
        versions=_V5,
        holds="what POP consumers have taken and acknowledged",
        verdict=Verdict.READ,
        action="what a group did not acknowledge is delivered again, in its POP retry topic",
    ),
)
_ATTRIBUTES: Final = (
    State(
        name="simple-queues",
        subject=Subject.TOPIC_ATTRIBUTE,
        pattern="queue.type=SimpleCQ|cleanup.policy=DELETE|reserve.time=-1",
        shown="queue.type=SimpleCQ, cleanup.policy=DELETE, reserve.time=-1",
        versions=_V5,
        holds="the defaults",
        verdict=Verdict.READ,
        action="kept",
    ),
    State(
        name="message-type",
        subject=Subject.TOPIC_ATTRIBUTE,
        pattern="message.type=.*",
        shown="message.type",
        versions=_V5,
        holds="the kind of messages that RocketMQ's proxy accepts",
        verdict=Verdict.READ,
        action="kept; brokers do not look at it either",
    ),
    State(
        name="batch-topic",
        subject=Subject.TOPIC_ATTRIBUTE,
        pattern="queue.type=BatchCQ",
        shown="queue.type=BatchCQ",
        holds="batches under one queue offset each",
        action="consume the topic with the broker, and make it anew with queue.type=SimpleCQ",
        **_REFUSED,  # type: ignore[arg-type] # verdict and versions
    ),
    State(
        name="compacted-topic",
        subject=Subject.TOPIC_ATTRIBUTE,
        pattern="cleanup.policy=COMPACTION",
        shown="cleanup.policy=COMPACTION",
        holds="the newest message of each key, for ever",
        action="consume the topic with the broker, and make it anew with cleanup.policy=DELETE",
        **_REFUSED,  # type: ignore[arg-type] # verdict and versions
    ),
    State(
        name="reserve-time",
        subject=Subject.TOPIC_ATTRIBUTE,
        pattern="reserve.time=.*",
        shown="reserve.time",
        holds="a retention of the topic's own, for tiered storage",
        action="fileReservedTime decides for all topics",
        **_NAMED,  # type: ignore[arg-type] # verdict and versions
    ),
)
_GROUP_FIELDS: Final = (
    State(
        name="group-settings",
        subject=Subject.GROUP_FIELD,
        pattern="groupName|consumeEnable|consumeFromMinEnable|consumeBroadcastEnable|retryQueueNums"
        "|retryMaxTimes|brokerId|whichBrokerWhenConsumeSlowly|notifyConsumerIdsChangedEnable"
        "|consumeMessageOrderly|consumeTimeoutMinute|groupSysFlag|attributes|groupRetryPolicy",
        shown="the fields of SubscriptionGroupConfig",
        holds="settings of a consumer group",
        verdict=Verdict.READ,
        action="kept; those that concern a store are obeyed",
    ),
    State(
        name="static-subscription",
        subject=Subject.GROUP_FIELD,
        pattern="subscriptionDataSet",
        shown="subscriptionDataSet",
        holds="subscriptions that an administrator set, for useStaticSubscription=true",
        action="kept; consumers over REST name their filters themselves",
        **_NAMED,  # type: ignore[arg-type] # verdict and versions
    ),
)
ALL: Final = (*_FILES, *_TOPICS, *_ATTRIBUTES, *_GROUP_FIELDS)
"""Every state. The first one of its subject that matches counts."""
