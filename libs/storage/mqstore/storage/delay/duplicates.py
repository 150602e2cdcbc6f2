"""Finds delayed messages that were delivered before the opening but are not in the saved progress.

After a crash delayOffset.json and timercheck are behind the log by up to one interval of their
saves; after a clean close they may be; a lost file is behind by everything.

A delivered copy has the UNIQ_KEY of the delayed record and keeps some of its properties, whether
this store or a real broker made it, so the index finds it. Of messages that a client sent twice
under one key, as many count as delivered as there are copies.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
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


KNOWN_MAX: Final = 8
"""Keys of which the records are known: a delayed message looks under its own in three topics."""


class DeliveryUnknown(StorageError):
    """The index is not complete, so it is unknown whether a message was delivered."""


class DeliveredCopies:
    """Searches the index for copies of records below ``end``, the log's end at the opening."""

    def __init__(self, lookups: Lookups, end: int) -> None:
        self._lookups = lookups
        self._end = end
        self._known: dict[tuple[str, str, str], tuple[array[int], array[int]]] = {}
        """The records of the last keys: a message that was sent many times under one key would
        otherwise read all of them for each."""

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
        key = topic, like.uniq_key or "", like.topic
        if key not in self._known:
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[key] = self._read(*key)
        identities, offsets = self._known[key]
        first = bisect_left(identities, hash(identity))
        last = bisect_right(identities, hash(identity), lo=first)
        return bisect_left(offsets, end, first, last) - first

    def _read(self, topic: str, key: str, waited_in: str) -> tuple[array[int], array[int]]:
        """The hashes of the identities of all records under a key, ascending, and the physical
        offsets of the records, which ascend for each identity."""
        found: list[tuple[int, int]] = []
        cursor = None
        while True:
            answer = self._lookups.by_key(topic, key, cursor=cursor)
            found += (
                (hash(_identity(each, waited_in)), each.physical_offset)
                for each in answer.records
                if each.physical_offset < self._end
            )
            cursor = answer.cursor
            if cursor is None:
                break
        if not answer.complete:
            raise DeliveryUnknown("the index, which shows what was delivered, is not complete yet")
        found.sort()
        return array("q", (each for each, _ in found)), array("q", (each for _, each in found))


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
