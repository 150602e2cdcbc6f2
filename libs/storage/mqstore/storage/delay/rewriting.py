"""Rewrites a message when its delay begins, and when it is delivered.

Sources: CommitLog.asyncPutMessage and ScheduleMessageService.messageTimeup of 4.9.7, HookUtils and
ScheduleMessageService.messageTimeUp of 5.4.0. In both a delivered copy keeps DELAY, REAL_TOPIC and
REAL_QID: the properties' text is taken before DELAY is dropped, and only the text is stored.
"""

from __future__ import annotations

import re
from typing import Final

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.delay_levels import DelayLevels, level_of
from mqstore.storage.errors import MessageInvalid, PropertyError, StorageError
from mqstore.storage.layout import (
    HALF_TOPIC,
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE,
    PROPERTY_TIMER_ENQUEUE,
    PROPERTY_TIMER_OUT,
    PROPERTY_TIMER_ROLLS,
    PROPERTY_TIMERS,
    SCHEDULE_TOPIC,
    TIMER_PRECISION_MS,
    TIMER_TOPIC,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    StoreFormat,
    SysFlag,
)

_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")
_QUEUE_ID_MAX: Final = 2**31 - 1
_TIME: Final = re.compile(r"[0-9]{1,18}")
_WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_DELAYABLE: Final = frozenset({TRANSACTION_NONE, int(SysFlag.TRANSACTION_COMMIT)})


class Undeliverable(StorageError):
    """A delayed record that has no valid destination."""


def queue_of(level: int) -> int:
    """The id of the queue of SCHEDULE_TOPIC_XXXX that holds a level's messages."""
    return level - 1


def level_of_queue(queue_id: int) -> int:
    """The level whose messages a queue of SCHEDULE_TOPIC_XXXX holds."""
    return queue_id + 1


def delay_message(
    message: Message, levels: DelayLevels, store_format: StoreFormat, now_ms: int
) -> Message:
    """Rewrite a message with a DELAY above 0 for SCHEDULE_TOPIC_XXXX, and one with a
    TIMER_DELIVER_MS in the future for rmq_sys_wheel_timer.

    A level comes before a time. Levels above the last become the last. Prepared and rollback
    messages, those for the two topics themselves, and copies that a timer delivered are returned
    unchanged. Raises MessageInvalid when a value is no number.
    """
    if message.sys_flag & TRANSACTION_MASK not in _DELAYABLE or message.topic in _WAITING_TOPICS:
        return message
    table = properties.decode(message.properties)
    level = min(_level_of(table), levels.max_level)
    if level <= 0:
        return _timed(message, table, store_format, now_ms)
    changes: dict[str, str | None] = {
        PROPERTY_DELAY: str(level),
        PROPERTY_REAL_TOPIC: message.topic,
        PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    if store_format is StoreFormat.V5_X:
        changes |= dict.fromkeys(PROPERTY_TIMERS)
    return message.replace(
        topic=SCHEDULE_TOPIC,
        queue_id=queue_of(level),
        properties=_replace_properties(message.properties, changes, store_format),
    )


def _timed(
    message: Message, table: dict[str, str], store_format: StoreFormat, now_ms: int
) -> Message:
    text = table.get(PROPERTY_DELIVER_AT)
    if text is None or PROPERTY_TIMER_OUT in table:
        return message
    if not _TIME.fullmatch(text):
        raise MessageInvalid(f"{PROPERTY_DELIVER_AT} is {text!r}; send milliseconds since 1970")
    if int(text) <= now_ms:
        return message
    changes: dict[str, str | None] = {
        PROPERTY_TIMER_OUT: str(slot_before(int(text))),
        PROPERTY_REAL_TOPIC: message.topic,
        PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    return message.replace(
        topic=TIMER_TOPIC,
        queue_id=0,
        properties=_replace_properties(message.properties, changes, store_format),
    )


def slot_before(deliver_ms: int) -> int:
    """The slot of a time, by its begin: the last one that ends at or after that time."""
    return (deliver_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS


def _level_of(table: dict[str, str]) -> int:
    text = table.get(PROPERTY_DELAY)
    if text is None:
        return 0
    level = level_of(text)
    if level is None:
        raise MessageInvalid(f"{PROPERTY_DELAY} is {text!r}; send the number of a delay level")
    return level


def _replace_properties(
    encoded: bytes, changes: dict[str, str | None], store_format: StoreFormat
) -> bytes:
    try:
        return properties.replace(
            encoded, changes, trailing_separator=store_format.trailing_property_separator
        )
    except PropertyError as error:
        raise MessageInvalid(f"a delayed message cannot be stored: {error}") from error


def copy_for_delivery(found: Record, store_format: StoreFormat) -> Message:
    """Build the copy of a delayed record for its real topic. Raises Undeliverable."""
    topic, queue_id = _destination(found)
    encoded = found.raw_properties
    if PROPERTY_CRC32 in (found.properties or {}):  # of the delayed record; its copy has others
        encoded = _replace_properties(encoded, {PROPERTY_CRC32: None}, store_format)
    return _copy(found, topic, queue_id, encoded)


def copy_of_timed(
    found: Record, enqueued_ms: int, now_ms: int, store_format: StoreFormat
) -> Message:
    """Build the copy of a record in rmq_sys_wheel_timer for its real topic.

    As RocketMQ's, it loses REAL_TOPIC and REAL_QID and has the times at which it entered and left
    the wheel. Raises Undeliverable.
    """
    topic, queue_id = _destination(found)
    changes: dict[str, str | None] = {
        PROPERTY_CRC32: None,
        PROPERTY_TIMER_ENQUEUE: str(enqueued_ms),
        PROPERTY_TIMER_DEQUEUE: str(now_ms),
        PROPERTY_REAL_TOPIC: None,
        PROPERTY_REAL_QUEUE_ID: None,
    }
    encoded = _replace_properties(found.raw_properties, changes, store_format)
    return _copy(found, topic, queue_id, encoded)


def rolled(found: Record, enqueued_ms: int, now_ms: int, store_format: StoreFormat) -> Message:
    """Build the copy of a record in rmq_sys_wheel_timer that takes its place there."""
    changes: dict[str, str | None] = {
        PROPERTY_CRC32: None,
        PROPERTY_TIMER_ENQUEUE: str(enqueued_ms),
        PROPERTY_TIMER_ROLLS: str(rolls_of(found) + 1),
        PROPERTY_TIMER_DEQUEUE: str(now_ms),
    }
    encoded = _replace_properties(found.raw_properties, changes, store_format)
    return _copy(found, found.topic, found.queue_id, encoded)


def rolls_of(found: Record) -> int:
    """How often a timed message was rolled before this record."""
    text = (found.properties or {}).get(PROPERTY_TIMER_ROLLS, "0")
    return int(text) if _TIME.fullmatch(text) else 0


def slot_of(found: Record) -> int:
    """The slot that a timed record names. Raises Undeliverable."""
    text = (found.properties or {}).get(PROPERTY_TIMER_OUT, "")
    if not _TIME.fullmatch(text):
        raise Undeliverable(f"{PROPERTY_TIMER_OUT} is {text!r}, no time")
    return int(text) // TIMER_PRECISION_MS * TIMER_PRECISION_MS


def _destination(found: Record) -> tuple[str, int]:
    table = found.properties or {}
    topic, queue = table.get(PROPERTY_REAL_TOPIC), table.get(PROPERTY_REAL_QUEUE_ID, "")
    if topic is None or topic == HALF_TOPIC or topic in _WAITING_TOPICS:
        raise Undeliverable(f"{PROPERTY_REAL_TOPIC} is {topic}, where nothing is delivered")
    if not _QUEUE_ID.fullmatch(queue) or int(queue) > _QUEUE_ID_MAX:
        raise Undeliverable(f"{PROPERTY_REAL_QUEUE_ID} is {queue!r}, no queue id")
    return topic, int(queue)


def _copy(found: Record, topic: str, queue_id: int, encoded: bytes) -> Message:
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=found.body,
        properties=encoded,
        born_host=found.born_host,
        store_host=found.store_host,
        born_timestamp_ms=found.born_timestamp_ms,
        flag=found.flag,
        sys_flag=found.sys_flag,
        reconsume_times=found.reconsume_times,
    )
