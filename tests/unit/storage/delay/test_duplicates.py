"""A delayed message that was sent many times under one key is searched once, not for each."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqstore.storage.codec.record import Record
from mqstore.storage.delay.duplicates import KNOWN_MAX, DeliveredCopies, DeliveryUnknown
from mqstore.storage.layout import PROPERTY_DELAY, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC
from mqstore.storage.lookup.lookups import Lookups

PAGE = 10


def record(topic: str, offset: int, key: str = "k", born_ms: int = 0) -> Record:
    found = SimpleNamespace(
        topic=topic,
        uniq_key=key,
        physical_offset=offset,
        born_timestamp_ms=born_ms,
        born_host=("127.0.0.1", 1),
        body_crc=7,
        properties={PROPERTY_DELAY: "3", PROPERTY_REAL_TOPIC: "T"},
    )
    return cast(Record, found)


class Searched:
    """Look-ups by key in pages, and their number."""

    def __init__(self, records: Sequence[Record], *, complete: bool = True) -> None:
        self.records = records
        self.complete = complete
        self.count = 0

    def by_key(self, topic: str, key: str, cursor: int | None = None) -> Any:
        self.count += 1
        here = [each for each in self.records if (each.topic, each.uniq_key) == (topic, key)]
        begin, end = cursor or 0, (cursor or 0) + PAGE
        following = end if end < len(here) else None
        return SimpleNamespace(records=here[begin:end], cursor=following, complete=self.complete)


def copies_of(searched: Searched, end: int) -> DeliveredCopies:
    return DeliveredCopies(cast(Lookups, searched), end)


def test_as_many_count_as_delivered_as_there_are_copies() -> None:
    waiting = [record(SCHEDULE_TOPIC, offset) for offset in range(100)]
    waiting += [record(SCHEDULE_TOPIC, 200, born_ms=5), record(SCHEDULE_TOPIC, 201, key="other")]
    delivered = [record("T", 1_000 + offset) for offset in range(40)]
    searched = Searched([*waiting, *delivered, record("T", 5_000)])
    copies = copies_of(searched, end=5_000)

    found = [copies.is_delivered(each) for each in waiting]

    assert found == [True] * 40 + [False] * 62
    assert searched.count <= 2 * (101 // PAGE + 1) + 2, "each key is read once in each topic"


def test_the_records_of_few_keys_are_kept() -> None:
    waiting = [record(SCHEDULE_TOPIC, offset, key=str(offset)) for offset in range(100)]
    copies = copies_of(Searched(waiting), end=1_000)
    assert not any(copies.is_delivered(each) for each in waiting)
    assert len(copies._known) == KNOWN_MAX


def test_an_incomplete_index_is_searched_again() -> None:
    searched = Searched([record(SCHEDULE_TOPIC, 0), record("T", 1)], complete=False)
    copies = copies_of(searched, end=10)
    with pytest.raises(DeliveryUnknown):
        copies.is_delivered(searched.records[0])
    searched.complete = True
    assert copies.is_delivered(searched.records[0])
