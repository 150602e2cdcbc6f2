"""Every number of the on-disk formats, in one place.

Source of all facts here: store directories written by real RocketMQ 4.9.7 and 5.4.0
(see docs/formats.md). All integers on disk are big-endian.
"""

from __future__ import annotations

from enum import IntFlag, StrEnum
from typing import Final

# Commit log records -------------------------------------------------------------------

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_RECORD_SIZE: Final = 8
"""Bytes written for a blank record; also the reserve that a record must leave in its segment."""

RECORD_FIXED_SIZE: Final = 91
"""Size of a V1 record with IPv4 hosts and no body, topic or properties."""
RECORD_V2_EXTRA_SIZE: Final = 1
RECORD_IPV6_EXTRA_SIZE: Final = 12
"""Added once for each host (born, store) that is an IPv6 address."""

TOPIC_LENGTH_MAX_V1: Final = 127
"""UTF-8 bytes; RocketMQ reads the length as a signed byte."""
TOPIC_LENGTH_MAX_V2: Final = 255
PROPERTIES_LENGTH_MAX: Final = 32767
BODY_CRC_MASK: Final = 0x7FFFFFFF

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"


class SysFlag(IntFlag):
    """SYSFLAG bits of a record."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    """A two-bit field: mask with this to get the transaction type."""
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    INNER_BATCH = 0x40
    NEED_UNWRAP_INNER_BATCH = 0x80
    COMPRESSION_TYPE_MASK = 0x700


TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
QUEUED_TYPES: Final = frozenset({TRANSACTION_NONE, int(SysFlag.TRANSACTION_COMMIT)})
"""Transaction types (SYSFLAG under TRANSACTION_MASK) of records that get queue entries."""

# Files --------------------------------------------------------------------------------

SEGMENT_NAME_DIGITS: Final = 20
QUEUE_ENTRY_SIZE: Final = 20
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""SIZE of the filler entry (offset 0, tagsCode 0) before the first real entry and in holes."""
EXT_ADDRESS_MIN: Final = -(2**63)
"""The address of the first byte of a queue's ConsumeQueueExt; others are so much above it."""
EXT_ADDRESS_MAX: Final = -2147483649
"""A ConsumeQueue tagsCode at or below this is the address of a ConsumeQueueExt unit."""
EXT_UNIT_SIZE_MIN: Final = 20
"""Bytes of a unit without a bitmap."""
EXT_UNIT_SIZE_MAX: Final = 32767
EXT_END_SIZE: Final = 4
"""Bytes at the end of a ConsumeQueueExt file that no unit takes."""

INDEX_HEADER_SIZE: Final = 40
INDEX_SLOT_SIZE: Final = 4
INDEX_ITEM_SIZE: Final = 20

CHECKPOINT_SIZE: Final = 4096
PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512
"""The least that a disk writes at once: of what straddles two, a power cut may leave one half."""

SMALL_FILE_MAX: Final = 128 << 20
"""Bytes of a file that is read whole: tables, manifests, notes. A million queues make a manifest of
70 MiB; a sparse file of terabytes is refused before any of it is read."""

# Files of ours ------------------------------------------------------------------------

BLOCK_SIZE: Final = 64 << 10
"""Bytes of the log under one checksum, counted from their segment's begin."""
BLOCK_HEADER_SIZE: Final = 64
BLOCK_ENTRY_SIZE: Final = 16
BLOCK_DOUBTFUL: Final = 1 << 31
"""Bit beside the length in a block's entry: a repair left bytes in it that no checksum is of."""


class StoreFormat(StrEnum):
    """Which RocketMQ generation a store directory follows where the two differ."""

    V4_9 = "4.9"
    V5_X = "5.x"

    @property
    def trailing_property_separator(self) -> bool:
        """5.x ends the properties with 0x02; 4.9 does not."""
        return self is StoreFormat.V5_X

    @property
    def indexes_tags(self) -> bool:
        """5.x adds an index entry ``topic#T#tags`` per tagged message."""
        return self is StoreFormat.V5_X

    @property
    def writes_v2_records(self) -> bool:
        """5.x writes a V2 record for a topic of more than 127 characters."""
        return self is StoreFormat.V5_X


# Property and topic names that the store itself acts on ----------------------------------

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
"""The ordering key of a message: MessageConst.PROPERTY_SHARDING_KEY of 5.4.0, where it is the
message group of the gRPC API. 4.9.7 has no such constant, and keeps it as a property of the user.
"""
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
"""The topic that a message was in before a group sent it back for the first time."""
PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""5.x: the group of a message in a POP retry topic."""
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""The offset message id of the first copy of a message that a group sent back."""
PROPERTY_TIMERS: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
"""5.x: other ways to name a delay; a delay level comes before them."""
PROPERTY_DELIVER_AT: Final = "TIMER_DELIVER_MS"
"""The time of delivery that a client named, in milliseconds since the epoch."""
PROPERTY_TIMER_OUT: Final = "TIMER_OUT_MS"
"""The slot in which a message waits: a message of slot T is due at T + TIMER_PRECISION_MS."""
PROPERTY_TIMER_ENQUEUE: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLLS: Final = "TIMER_ROLL_TIMES"
"""How often a waiting message was stored anew, because its time is beyond the roll window."""
PROPERTY_TIMER_RECALLED: Final = "TIMER_DEL_UNIQKEY"
"""In a recall: the unique key of the message that is not to be delivered."""
TIMER_PRECISION_MS: Final = 1_000
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_CRC32: Final = "__CRC32#"
CRC32_PROPERTY_SIZE: Final = 20
"""Name, 0x01, ten digits and 0x02: always the last bytes of the properties that have it."""
PROPERTY_TOMBSTONE: Final = "__TOMBSTONE"
"""Ours, for those who read with RocketMQ: the record stands where an unreadable one was."""
TOMBSTONE_MARK: Final = int.from_bytes(b"mqsTOMB\x01")
"""PREPAREDTRANSACTIONOFFSET of such a record: there is always room for it."""
KEY_SEPARATOR: Final = " "
LMQ_PREFIX: Final = "%LMQ%"
MULTI_DISPATCH_SEPARATOR: Final = ","
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""The topic, of one queue, of messages that wait for a time; in 4.9 stores it is ours alone."""

# Transactions (TransactionalMessageBridge and EndTransactionProcessor of 4.9.7 and 5.4.0) ------

OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets in the half and op queues bound the resolved transactions."""
OP_TAG: Final = "d"
OP_SEPARATOR: Final = ","
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
"""5.x: UNIQ_KEY once more."""
PROPERTY_TRANSACTION_KEY: Final = "MQSTORE_TRANSACTION"
"""Ours, in halves of a transaction with several messages: its key."""
PROPERTY_TRANSACTION_SIZE: Final = "MQSTORE_TRANSACTION_SIZE"
"""Ours: how many messages that transaction has."""
PROPERTY_DECISION: Final = "MQSTORE_DECISION"
"""Ours, in op records: commit, rollback or set-aside."""
PROPERTY_DECIDED_AT: Final = "MQSTORE_DECIDED_AT"
PROPERTY_WHY: Final = "MQSTORE_WHY"
"""Ours: the reason of a decision, or of a consumer that returned a message."""
PROPERTY_ATTEMPTS: Final = "MQSTORE_ATTEMPTS"
"""Ours, in dead letters: how often the message was delivered to the group."""
PROPERTY_RETURNED_MESSAGE_ID: Final = "MQSTORE_RETURNED"
"""The offset message id of the message that a copy was returned for, where it was a copy too."""
PROPERTY_DEAD_LETTER: Final = "MQSTORE_DEAD_LETTER"
"""Ours, in a message that was resent: the offset message id of its dead letter."""
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
"""5.x, in dead letters: the topic that the message was in."""
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
