"""Recognises what was delivered before the store was opened and is not in delayOffset.json.

A crash leaves that file behind the log by up to flushDelayOffsetInterval, and a clean close soon
after it may leave it so; a lost file is behind by everything.

A delivered copy has the UNIQ_KEY of the delayed record and keeps its DELAY, REAL_TOPIC and
REAL_QID, whether it was made here or by a real broker: the index finds it. Of messages that a
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


class CannotTellYet(StorageError):
    """The index is still being made."""


class Repeats:
    """Looks for copies of records that stand below ``end``, the log's end at the opening."""

    def __init__(self, lookups: Lookups, end: int) -> None:
        self._lookups = lookups
        self._end = end

    def is_delivered(self, found: Record) -> bool:
        """Whether the log shows that a delayed record was delivered. Raises CannotTellYet."""
        key, topic = found.uniq_key, (found.properties or {}).get(PROPERTY_REAL_TOPIC)
        if found.physical_offset >= self._end or key is None or topic is None:
            return False
        copies = self._count(topic, key, found, self._end)
        return copies > 0 and copies >= self._count(
            SCHEDULE_TOPIC, key, found, found.physical_offset + 1
        )

    def _count(self, topic: str, key: str, like: Record, end: int) -> int:
        """Records below ``end`` that are the same message as ``like``."""
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
            raise CannotTellYet("the index, which tells what was delivered, is not complete yet")
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
