"""Files and directories that brokers of 4.9.7 and 5.4.0 leave in a store.

Source: StorePathConfigHelper, BrokerPathConfigHelper, the config managers, TimerWheel,
CompactionStore, MessageRocksDBStorage, PopConsumerService, DefaultMetadataStore and
DLedgerCommitLog of both versions.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mqstore.storage.inventory.state import V5, Content, State, Subject, Verdict, state

_file = partial(state, Subject.FILE)
_COPIES: Final = r"(\.bak|\.tmp)?"
_REFUSED: Final = {"verdict": Verdict.REFUSED, "versions": V5}
_NAMED: Final = {"verdict": Verdict.NAMED, "versions": V5}
_EXPORT: Final = (
    "let the running broker write them to config/*.json with `mqadmin rocksDBConfigToJson -b "
    "ADDRESS`, stop it, then remove the directories"
)
_FOLLOW: Final = (
    "no command of RocketMQ writes them to files: copy the store without this directory while its "
    "broker runs, and follow the broker (haMasterAddress and masterAddress), which hands them over"
)

FILES: Final[tuple[State, ...]] = (
    _file(
        "lost-log",
        "commitlog without messages that other files show",
        "the messages but for a part of them, or none",
        "set storePathCommitLog to the directory of the log, put the missing files back, or accept "
        "the loss with `mqstore store accept-loss`",
        pattern="commitlog",
        content=Content.COMPARED,
        verdict=Verdict.REFUSED,
    ),
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
    _file("timer-wheel", "timerwheel", "messages with a time, by second", versions=V5),
    _file("timer-log", "timerlog", "messages with a time", versions=V5),
    _file(
        "timer-snapshot",
        "timerwheel.N",
        "the timer wheel of timerWheelSnapshotFlush=true",
        "timerwheel is made of timerlog, and they are removed then",
        pattern=r"timerwheel\.\d+(\.tmp)?",
        versions=V5,
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
        versions=V5,
    ),
    _file(
        "counters",
        "config/timermetrics, config/transactionMetrics",
        "counters for metrics",
        "left unchanged; a broker counts anew",
        pattern=rf"config/(timermetrics|transactionMetrics){_COPIES}",
        versions=V5,
    ),
    _file(
        "static-topics",
        "config/topicQueueMapping.json",
        "topics whose queues are mapped over brokers",
        "consume the topics with the broker, delete them with `mqadmin deleteTopic`, and make them "
        "anew as ordinary ones: the mapped queue numbers are in no record",
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
        versions=V5,
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
        versions=V5,
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
        versions=V5,
    ),
    _file(
        "tables-in-rocksdb",
        "config/topics/, subscriptionGroups/, consumerOffsets/, metadata/",
        "topics, groups and offsets of a broker with storeType=defaultRocksDB",
        _EXPORT,
        pattern=r"config/(topics|subscriptionGroups|consumerOffsets|metadata)",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "tables-of-v2",
        "config/rdb",
        "topics, groups and offsets of a broker with configManagerVersion=v2",
        _FOLLOW,
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "tables-in-rocksdb-none",
        "these directories, empty",
        "nothing",
        "left unchanged",
        pattern=r"config/(topics|subscriptionGroups|consumerOffsets|metadata|rdb)",
        versions=V5,
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
        "messages older than the log are in the tier alone: consume them with the broker first, "
        "start it once without messageStorePlugIn, stop it, then remove the file",
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
        "config/tieredStoreMetadata.json without a segment, tiered_index_file",
        "no message",
        "left unchanged",
        pattern=rf"config/tieredStoreMetadata\.json{_COPIES}|tiered_index_file",
        versions=V5,
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
        "consume these topics with the broker, delete them with `mqadmin deleteTopic`, and make "
        "them anew with queue.type=SimpleCQ",
        content=Content.FILES,
        **_REFUSED,
    ),
    _file(
        "batch-queues-none",
        "batchconsumequeue, empty",
        "nothing",
        "left unchanged",
        pattern="batchconsumequeue",
        versions=V5,
    ),
    _file(
        "compaction",
        "compaction/compactionLog",
        "the newest message of each key of topics with cleanup.policy=COMPACTION",
        "consume these topics with the broker, delete them with `mqadmin deleteTopic`, stop it, "
        "then remove the directory compaction",
        content=Content.FILES,
        **_REFUSED,
    ),
    _file(
        "compaction-none",
        "compaction",
        "how far topics are compacted: none is",
        "left unchanged",
        pattern="compaction(/compactionLog)?",
        versions=V5,
    ),
    _file(
        "timers-in-rocksdb",
        "rocksdbstore",
        "timed messages, half messages or the index of a broker that keeps them in RocksDB",
        "let its broker decide the transactions, stop it, then remove the directory: messages with "
        "a time are delivered from the log, and keys are indexed from it",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "rocksdb-none",
        "rocksdbstore, empty",
        "nothing",
        "left unchanged",
        pattern="rocksdbstore",
        versions=V5,
    ),
    _file(
        "pop-in-rocksdb",
        "kvStore",
        "what POP consumers have taken, of popConsumerKVServiceEnable=true",
        "start its broker with popConsumerKVServiceEnable=false and popConsumerKVServiceInit=true, "
        "let it write them to the log with `mqadmin exportPopRecord -b ADDRESS`, stop it, then "
        "remove the directory",
        content=Content.ROCKSDB,
        **_REFUSED,
    ),
    _file(
        "pop-in-rocksdb-none",
        "kvStore, empty",
        "nothing",
        "left unchanged",
        pattern="kvStore",
        versions=V5,
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
