"""Finds delayed messages that were delivered before the opening but are not in the saved progress.

After a crash delayOffset.json and timercheck are behind the log by up to one interval of their
saves; after a clean close they may be; a lost file is behind by everything.

A delivered copy has the UNIQ_KEY of the delayed record and keeps some of its properties, whether
this store or a real broker made it, so the index finds it. Of messages that a client sent twice
under one key, as many count as delivered as there are copies.
"""

from __future__ import annotations

from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.delay.rewriting import rolls_of
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import (
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT,
    PROPERTY_TIMER_ROLLS,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from mqstore.storage.lookup.lookups import Lookups

_KEPT: Final = {
    SCHEDULE_TOPIC: (PROPERTY_DELAY, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID),
    TIMER_TOPIC: (PROPERTY_TIMER_OUT, PROPERTY_TIMER_ROLLS),
}
"""The properties of a record in a topic that its delivered copy has too."""


class DeliveryUnknown(StorageError):
    """The index is not complete, so it is unknown whether a message was delivered."""


class DeliveredCopies:
    """Searches the index for copies of records below ``end``, the log's end at the opening."""

    def __init__(self, lookups: Lookups, end: int) -> None:
        self._lookups = lookups
        self._end = end

    def is_delivered(self, found: Record) -> bool:
        """Whether the log shows that a delayed record was delivered. Raises DeliveryUnknown."""
        topic = (found.properties or {}).get(PROPERTY_REAL_TOPIC)
        return topic is not None and self._has(topic, found, _identity(found, found.topic))

    def is_rolled(self, found: Record) -> bool:
        """Whether a later record took a timed record's place. Raises DeliveryUnknown."""
        identity = _identity(found, found.topic, rolls=str(rolls_of(found) + 1))
        return self._has(found.topic, found, identity)

    def _has(self, topic: str, found: Record, identity: tuple[object, ...]) -> bool:
        """Whether a topic has as many records of this identity as ``found`` has up to itself."""
        if found.physical_offset >= self._end or found.uniq_key is None:
            return False
        copies = self._count(topic, found, identity, self._end)
        own, end = _identity(found, found.topic), found.physical_offset + 1
        return copies > 0 and copies >= self._count(found.topic, found, own, end)

    def _count(self, topic: str, like: Record, identity: tuple[object, ...], end: int) -> int:
        """Count the records of a topic below ``end`` under a record's key with an identity."""
        count, cursor = 0, None
        while True:
            answer = self._lookups.by_key(topic, like.uniq_key or "", cursor=cursor)
            count += sum(
                each.physical_offset < end and _identity(each, like.topic) == identity
                for each in answer.records
            )
            cursor = answer.cursor
            if cursor is None:
                break
        if not answer.complete:
            raise DeliveryUnknown("the index, which shows what was delivered, is not complete yet")
        return count


def _identity(found: Record, waited_in: str, rolls: str | None = None) -> tuple[object, ...]:
    """The values that a record of the topic ``waited_in`` shares with its copies alone."""
    table = dict(found.properties or {})
    if rolls is not None:
        table[PROPERTY_TIMER_ROLLS] = rolls
    return (
        found.uniq_key,
        *(table.get(name) for name in _KEPT[waited_in]),
        found.born_timestamp_ms,
        found.born_host,
        found.body_crc,
    )
