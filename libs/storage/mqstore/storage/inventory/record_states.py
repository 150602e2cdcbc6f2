"""Flags and properties of the records that brokers of 4.9.7 and 5.4.0 write.

Source: MessageSysFlag and MessageConst of both versions.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mqstore.storage.inventory.state import V5, State, Subject, Verdict, state

_flag = partial(state, Subject.RECORD_FLAG)
_property = partial(state, Subject.PROPERTY)

FLAGS: Final[tuple[State, ...]] = (
    _flag("compressed", "0x1", "a compressed body", "inflated on request"),
    _flag("multi-tag", "0x2", "a message of a topic with topicFilterType=MULTI_TAG"),
    _flag("transaction", "0xc", "the state of a transaction", "continued"),
    _flag("host-v6", "0x10, 0x20", "a host with an IPv6 address"),
    _flag("compression-type", "0x700", "LZ4, Zstandard or ZLIB", "inflated on request"),
    _flag(
        "inner-batch",
        "0x40, 0x80",
        "several messages in one record, of a topic with queue.type=BatchCQ",
        "a record is delivered as one message; RocketMQ's clients divide its body",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
)
PROPERTIES: Final[tuple[State, ...]] = (
    _property("tags-and-keys", "TAGS, KEYS, UNIQ_KEY", "what a message is found by"),
    _property(
        "delays",
        "DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS, "
        "TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_ROLL_LABEL, TIMER_DELAY_LEVEL, "
        "TIMER_DEL_UNIQKEY",
        "when a message is due, and its way through the timer",
        "delivered then",
    ),
    _property("real-place", "REAL_TOPIC, REAL_QID", "the topic and queue to deliver to", "used"),
    _property(
        "transactions",
        "TRAN_MSG, PGROUP, __transactionId__, TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES, "
        "CHECK_IMMUNITY_TIME_IN_SECONDS, TRANS_OFFSET",
        "a transaction and its checks",
        "continued",
    ),
    _property(
        "retries",
        "RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, ORIGIN_GROUP, "
        "DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, CONSUME_START_TIME",
        "where a returned message comes from",
        "continued",
    ),
    _property(
        "pop",
        "POP_CK, POP_CK_OFFSET, 1ST_POP_TIME, DUP_INFO",
        "a delivery to a POP consumer",
        versions=V5,
    ),
    _property("ordering", "__SHARDINGKEY", "the ordering key", "decides the queue of a put"),
    _property(
        "multi-dispatch",
        "INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET",
        "further queues of the message",
        "filled with enableMultiDispatch or enableLmq",
    ),
    _property(
        "priority",
        "_SYS_MSG_PRIORITY_",
        "a priority, which decided the queue",
        "receives take the highest queue of a priority topic first; puts cannot have one",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
    _property(
        "inner-batch-size",
        "INNER_NUM, INNER_BASE",
        "the number of messages in a record, of a topic with queue.type=BatchCQ",
        "a record is delivered as one message; RocketMQ's clients divide its body",
        verdict=Verdict.NAMED,
        versions=V5,
    ),
    _property(
        "requests",
        "CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER, MSG_TYPE",
        "requests and replies between RocketMQ's clients",
    ),
    _property("checksum", "__CRC32#", "a checksum of the record", "compared", versions=V5),
    _property(
        "notes",
        "WAIT, BUYER_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, MIN_OFFSET, MAX_OFFSET, "
        "MSG_REGION, TRACE_ON, INSTANCE_ID, EXTEND_UNIQ_INFO, PROPERTY_FORWARD_QUEUE_ID, REDIRECT, "
        "TRACE_CONTEXT, __BORNHOST, BORN_TIMESTAMP",
        "notes of clients and brokers that decide nothing in a store",
    ),
)
