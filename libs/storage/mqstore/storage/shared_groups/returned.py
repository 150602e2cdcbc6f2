"""Builds the copy of a message that a consumer returned: for a retry, or as a dead letter; and the
copy of a dead letter that is resent.

Source: SendMessageProcessor.asyncConsumerSendMsgBack of 4.9.7, AbstractSendMessageProcessor of
5.4.0: both keep body, flag, system flag, born time and born host, count ``reconsumeTimes`` up, and
set RETRY_TOPIC and ORIGIN_MESSAGE_ID once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqstore.storage.codec import properties
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.errors import ReceiptInvalid
from mqstore.storage.layout import (
    PROPERTY_ATTEMPTS,
    PROPERTY_CRC32,
    PROPERTY_DEAD_LETTER,
    PROPERTY_DELAY,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_RETURNED_MESSAGE_ID,
    PROPERTY_WAIT,
    PROPERTY_WHY,
    StoreFormat,
)
from mqstore.storage.lookup import pop_records
from mqstore.storage.lookup.dead_letters import DeadLetter
from mqstore.storage.shared_groups.results import DeliveredBatch
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX

FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry, 10 s by default; each further retry takes the next level."""
DEAD: Final = -1
"""Delay level that makes a message a dead letter at once."""
BY_COUNT: Final = 0
"""Delay level that follows the number of retries."""
ORDERED_DELAY_S: Final = 1.0
"""How long a returned message holds its ordered queue without another delay; as RocketMQ's
suspendCurrentQueueTimeMillis."""
_OF_DEAD_LETTERS: Final = (
    PROPERTY_ATTEMPTS,
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_RETURNED_MESSAGE_ID,
    PROPERTY_WHY,
)
"""Properties of a dead letter that its message did not have."""


def level_for(found: Record, requested: int) -> int:
    """The delay level of the next retry of a message."""
    return FIRST_RETRY_LEVEL + found.reconsume_times if requested == BY_COUNT else requested


def level_of_delay(levels: DelayLevels, delay_s: float) -> int:
    """The shortest delay level that is as long. Raises ReceiptInvalid."""
    found = levels.level_of_delay(delay_s * 1000)
    if found is None:
        raise ReceiptInvalid(
            f"delayS is {delay_s:g}, longer than each delay of messageDelayLevel; give less"
        )
    return found


def hold_s(levels: DelayLevels, level: int) -> float:
    """How long a message that is returned with a level holds its ordered queue, in seconds."""
    return ORDERED_DELAY_S if level == BY_COUNT else levels.delivery_time(level, 0) / 1000


def copy_for_retry(
    found: Record,
    group: str,
    queue_id: int,
    level: int,
    store_host: Host,
    store_format: StoreFormat,
    *,
    reason: str = "",
) -> Message:
    """Build the copy for ``%RETRY%group``, which the store delivers after a delay level.

    Raises PropertyError.
    """
    topic, changes = RETRY_PREFIX + group, _of_return(found, level, reason)
    count = found.reconsume_times + 1
    return _copy(found, topic, queue_id, changes, count, store_host, store_format)


def copy_for_dead_letters(
    found: Record,
    group: str,
    attempts: int,
    store_host: Host,
    store_format: StoreFormat,
    *,
    reason: str = "",
) -> Message:
    """Build the copy for queue 0 of ``%DLQ%group``, with the number of deliveries.

    Raises PropertyError.
    """
    changes = {**_of_return(found, 0, reason), PROPERTY_ATTEMPTS: str(attempts)}
    count = found.reconsume_times + 1
    return _copy(found, DLQ_PREFIX + group, 0, changes, count, store_host, store_format)


def copy_of_dead_letter(
    letter: DeadLetter, topic: str, queue_id: int, store_host: Host, store_format: StoreFormat
) -> Message:
    """Build the message that resends a dead letter: as it was, and not returned yet.

    It names its dead letter, and keeps ORIGIN_MESSAGE_ID; in a retry topic also RETRY_TOPIC. Raises
    PropertyError.
    """
    found, is_retry = letter.record, topic.startswith(RETRY_PREFIX)
    changes: dict[str, str | None] = {
        **dict.fromkeys(_OF_DEAD_LETTERS),
        PROPERTY_RETRY_TOPIC: letter.source_topic if is_retry else None,
        PROPERTY_ORIGIN_MESSAGE_ID: letter.origin_message_id,
        PROPERTY_DEAD_LETTER: found.offset_message_id,
    }
    return _copy(found, topic, queue_id, changes, 0, store_host, store_format)


def source_topic(found: Record) -> str:
    """The topic that a message was produced to."""
    known = found.properties or {}
    group = known.get(PROPERTY_ORIGIN_GROUP, "")
    of_pop = pop_records.source_of(found.topic, group) if group else None
    return known.get(PROPERTY_RETRY_TOPIC) or of_pop or found.topic


def _of_return(found: Record, level: int, reason: str) -> dict[str, str | None]:
    """The properties that a return changes."""
    known = found.properties or {}
    return {
        PROPERTY_DELAY: str(level),
        PROPERTY_WAIT: "false",
        PROPERTY_RETRY_TOPIC: source_topic(found),
        PROPERTY_ORIGIN_MESSAGE_ID: known.get(PROPERTY_ORIGIN_MESSAGE_ID)
        or found.offset_message_id,
        PROPERTY_RETURNED_MESSAGE_ID: found.offset_message_id
        if PROPERTY_ORIGIN_MESSAGE_ID in known
        else None,
        PROPERTY_WHY: reason or None,
        PROPERTY_CRC32: None,  # of the original; the copy has other bytes
    }


def _copy(
    found: Record,
    topic: str,
    queue_id: int,
    changes: Mapping[str, str | None],
    reconsume_times: int,
    store_host: Host,
    store_format: StoreFormat,
) -> Message:
    separator = store_format.trailing_property_separator
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=found.body,
        properties=properties.replace(found.raw_properties, changes, trailing_separator=separator),
        born_host=found.born_host,
        store_host=store_host,
        born_timestamp_ms=found.born_timestamp_ms,
        flag=found.flag,
        sys_flag=found.sys_flag,
        reconsume_times=reconsume_times,
    )


def by_source(batch: DeliveredBatch) -> list[DeliveredBatch]:
    """Divide messages of a retry topic by the topics that they were produced to."""
    return [
        batch._replace(records=[record], attempts=[times], source_topic=source_topic(record))
        for record, times in zip(batch.records, batch.attempts, strict=True)
    ]
