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
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMERS,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    StoreFormat,
    SysFlag,
)

_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")
_QUEUE_ID_MAX: Final = 2**31 - 1
_DELAYABLE: Final = frozenset({TRANSACTION_NONE, int(SysFlag.TRANSACTION_COMMIT)})


class Undeliverable(StorageError):
    """A delayed record that has no valid destination."""


def queue_of(level: int) -> int:
    """The id of the queue of SCHEDULE_TOPIC_XXXX that holds a level's messages."""
    return level - 1


def delay_message(message: Message, levels: DelayLevels, store_format: StoreFormat) -> Message:
    """Rewrite a message with a DELAY above 0 for SCHEDULE_TOPIC_XXXX.

    Levels above the last become the last. Prepared and rollback messages, and those for
    SCHEDULE_TOPIC_XXXX itself, are returned unchanged. Raises MessageInvalid when DELAY is no
    number.
    """
    if message.sys_flag & TRANSACTION_MASK not in _DELAYABLE or message.topic == SCHEDULE_TOPIC:
        return message
    level = min(_level_of(message), levels.max_level)
    if level <= 0:
        return message
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


def _level_of(message: Message) -> int:
    text = properties.decode(message.properties).get(PROPERTY_DELAY)
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
    table = found.properties or {}
    topic, queue = table.get(PROPERTY_REAL_TOPIC), table.get(PROPERTY_REAL_QUEUE_ID, "")
    if topic is None or topic in (HALF_TOPIC, SCHEDULE_TOPIC):
        raise Undeliverable(f"{PROPERTY_REAL_TOPIC} is {topic}, where nothing is delivered")
    if not _QUEUE_ID.fullmatch(queue) or int(queue) > _QUEUE_ID_MAX:
        raise Undeliverable(f"{PROPERTY_REAL_QUEUE_ID} is {queue!r}, no queue id")
    encoded = found.raw_properties
    if PROPERTY_CRC32 in table:  # of the delayed record; its copy has other bytes
        encoded = _replace_properties(encoded, {PROPERTY_CRC32: None}, store_format)
    return Message(
        topic=topic,
        queue_id=int(queue),
        body=found.body,
        properties=encoded,
        born_host=found.born_host,
        store_host=found.store_host,
        born_timestamp_ms=found.born_timestamp_ms,
        flag=found.flag,
        sys_flag=found.sys_flag,
        reconsume_times=found.reconsume_times,
    )
