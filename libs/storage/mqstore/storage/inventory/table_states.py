"""Topics, attributes and groups of the config tables of brokers of 4.9.7 and 5.4.0.

Source: TopicValidator, PopAckConstants, KeyBuilder, TopicAttributes, SubscriptionGroupAttributes
and SubscriptionGroupConfig of both versions, and the brokers' processors that read them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mqstore.storage.inventory.state import V5, State, Subject, Verdict, state

_topic = partial(state, Subject.TOPIC)
_topic_field = partial(state, Subject.TOPIC_FIELD)
_attribute = partial(state, Subject.TOPIC_ATTRIBUTE, versions=V5)
_group_field = partial(state, Subject.GROUP_FIELD)

TOPICS: Final[tuple[State, ...]] = (
    _topic("delay-topic", "SCHEDULE_TOPIC_XXXX", "messages with a delay level", "delivered"),
    _topic("timer-topic", "rmq_sys_wheel_timer", "messages with a time", "delivered", versions=V5),
    _topic(
        "transaction-topics",
        "RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC",
        "half messages, decisions, and what was checked too often",
        "continued",
    ),
    _topic(
        "trace-topic",
        "RMQ_SYS_TRACE_TOPIC, rmq_sys_TRACE_DATA_REGION",
        "traces that clients sent",
        "served as messages",
        pattern="RMQ_SYS_TRACE_TOPIC|rmq_sys_TRACE_DATA_.+",
    ),
    _topic(
        "broker-topics",
        "TBW102, BenchmarkTest, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, CHECKPOINT_TOPIC, "
        "rmq_sys_SYNC_BROKER_MEMBER_NAME, CLUSTER_REPLY_TOPIC, "
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC, and topics named "
        "as broker and cluster",
        "templates and notes of a broker",
        pattern="TBW102|BenchmarkTest|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|CHECKPOINT_TOPIC"
        "|rmq_sys_SYNC_BROKER_MEMBER_.+|.+_REPLY_TOPIC|RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC",
    ),
    _topic(
        "pop-revive",
        "rmq_sys_REVIVE_LOG_CLUSTER",
        "what POP consumers have taken and acknowledged",
        "what a group did not acknowledge is delivered again, in its POP retry topic",
        pattern="rmq_sys_REVIVE_LOG_.+",
        versions=V5,
    ),
)
TOPIC_FIELDS: Final[tuple[State, ...]] = (
    _topic_field(
        "perm",
        "perm",
        "whether the topic may be read (4) and written (2); of TBW102, whether producers may "
        "create others after it (1)",
        "obeyed by every endpoint that stores or delivers",
        pattern=r"perm=\d+",
    ),
    _topic_field(
        "topic-queues",
        "readQueueNums, writeQueueNums",
        "the number of queues",
        "obeyed; consumers receive from the greater number",
        pattern=r"(read|write)QueueNums=\d+",
    ),
    _topic_field(
        "filter-type",
        "topicFilterType",
        "whether records get the flag of several tags, which no filter looks at",
        pattern='topicFilterType="(SINGLE|MULTI)_TAG"',
    ),
    _topic_field(
        "topic-of-brokers",
        "topicName, order, topicSysFlag",
        "settings for name servers and RocketMQ's own clients",
        pattern="(topicName|order|topicSysFlag)=.*",
    ),
)
ATTRIBUTES: Final[tuple[State, ...]] = (
    _attribute(
        "simple-queues",
        "queue.type=SimpleCQ, cleanup.policy=DELETE, reserve.time=-1",
        "the defaults",
    ),
    _attribute(
        "priority-topic",
        "message.type=PRIORITY",
        "messages with a priority, in the queue of their number",
        "a receive takes the queue of the highest priority first; a put goes to the queue that it "
        "names, whatever its priority",
        verdict=Verdict.NAMED,
    ),
    _attribute(
        "message-type",
        "message.type",
        "the kind of messages that RocketMQ's proxy accepts",
        "kept; brokers do not look at it either",
        pattern="message.type=(UNSPECIFIED|NORMAL|FIFO|DELAY|TRANSACTION|MIXED)",
    ),
    _attribute(
        "batch-topic",
        "queue.type=BatchCQ",
        "batches under one queue offset each",
        "consume the topic with the broker, delete it with `mqadmin deleteTopic`, and make it anew "
        "with queue.type=SimpleCQ",
        verdict=Verdict.REFUSED,
    ),
    _attribute(
        "compacted-topic",
        "cleanup.policy=COMPACTION",
        "the newest message of each key, for ever",
        "consume the topic with the broker, delete it with `mqadmin deleteTopic`, and make it anew "
        "with cleanup.policy=DELETE",
        verdict=Verdict.REFUSED,
    ),
    _attribute(
        "reserve-time",
        "reserve.time",
        "a retention of the topic's own, for tiered storage",
        "fileReservedTime decides for all topics",
        pattern="reserve.time=.*",
        verdict=Verdict.NAMED,
    ),
)
GROUPS: Final[tuple[State, ...]] = (
    _group_field(
        "odd-group-name",
        "groupName",
        "a name of more than 120 characters, or with some that mqstore's names of groups may not "
        "have; a broker of 4.9 checks none",
        "requests that name the group are refused; its offsets are kept and handed back",
        pattern=r'groupName="(.{121,}|.*[^%|a-zA-Z0-9_-].*)"',
        verdict=Verdict.NAMED,
    ),
    _group_field(
        "group-switches",
        "consumeEnable, retryMaxTimes, retryQueueNums",
        "whether the group may consume, and its retries; without retry queues, that what a "
        "consumer gives back is dropped",
        "obeyed by receives, pulls and returns",
        pattern="(consumeEnable|retryMaxTimes|retryQueueNums)=.*",
    ),
    _group_field(
        "group-of-brokers",
        "groupName, brokerId, whichBrokerWhenConsumeSlowly, notifyConsumerIdsChangedEnable, "
        "consumeBroadcastEnable, consumeFromMinEnable, consumeMessageOrderly, "
        "consumeTimeoutMinute, groupSysFlag",
        "settings for RocketMQ's own clients, which no broker applies to messages",
        pattern="(groupName|brokerId|whichBrokerWhenConsumeSlowly|notifyConsumerIdsChangedEnable"
        "|consumeBroadcastEnable|consumeFromMinEnable|consumeMessageOrderly|consumeTimeoutMinute"
        "|groupSysFlag)=.*",
    ),
    _group_field(
        "retry-policy",
        "groupRetryPolicy without a policy of its own",
        "the default times between retries",
        pattern=r'groupRetryPolicy=\{"type":"CUSTOMIZED"\}',
        versions=V5,
    ),
    _group_field(
        "own-retry-policy",
        "groupRetryPolicy",
        "times between retries for consumers of RocketMQ's proxy",
        "retries follow messageDelayLevel, or what the return says, as those of a broker",
        pattern="groupRetryPolicy=.*",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
    _group_field(
        "static-subscription",
        "subscriptionDataSet",
        "subscriptions that an administrator set, for useStaticSubscription=true",
        "kept; consumers over REST name their filters themselves",
        pattern="subscriptionDataSet=.*",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
    state(
        Subject.GROUP_ATTRIBUTE,
        "priority-factor",
        "priority.factor",
        "how often POP takes the highest priority first",
        "each receive does",
        pattern="priority.factor=.*",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
)
