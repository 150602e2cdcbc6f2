"""Finds delayed messages that were delivered before the opening but are not in delayOffset.json.

After a crash that file is behind the log by up to flushDelayOffsetInterval; after a clean close it
may be; a lost file is behind by everything.

A delivered copy has the UNIQ_KEY of the delayed record and keeps its DELAY, REAL_TOPIC and
REAL_QID, whether this store or a real broker made it, so the index finds it. Of messages that a
client sent twice under one key, as many count as delivered as there are copies.
"""

from __future__ import annotations

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import (
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    SCHEDULE_TOPIC,
)
from mqstore.storage.lookup.lookups import Lookups


class DeliveryUnknown(StorageError):
    """The index is not complete, so it is unknown whether a message was delivered."""


class DeliveredCopies:
    """Searches the index for copies of records below ``end``, the log's end at the opening."""

    def __init__(self, lookups: Lookups, end: int) -> None:
        self._lookups = lookups
        self._end = end

    def is_delivered(self, found: Record) -> bool:
        """Whether the log shows that a delayed record was delivered. Raises DeliveryUnknown."""
        key, topic = found.uniq_key, (found.properties or {}).get(PROPERTY_REAL_TOPIC)
        if found.physical_offset >= self._end or key is None or topic is None:
            return False
        copies = self._count(topic, key, found, self._end)
        return copies > 0 and copies >= self._count(
            SCHEDULE_TOPIC, key, found, found.physical_offset + 1
        )

    def _count(self, topic: str, key: str, like: Record, end: int) -> int:
        """Count the records below ``end`` that are the same message as ``like``."""
        count, cursor = 0, None
        while True:
            answer = self._lookups.by_key(topic, key, cursor=cursor)
            count += sum(
                each.physical_offset < end and _identity(each) == _identity(like)
                for each in answer.records
            )
            cursor = answer.cursor
            if cursor is None:
                break
        if not answer.complete:
            raise DeliveryUnknown("the index, which shows what was delivered, is not complete yet")
        return count


def _identity(found: Record) -> tuple[object, ...]:
    table = found.properties or {}
    return (
        found.uniq_key,
        table.get(PROPERTY_DELAY),
        table.get(PROPERTY_REAL_TOPIC),
        table.get(PROPERTY_REAL_QUEUE_ID),
        found.born_timestamp_ms,
        found.born_host,
        found.body_crc,
    )
