"""``consumerFilter.json``: the filter expression of each group's subscription to a topic.

Source: ConsumerFilterManager and ConsumerFilterData of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqstore.storage.layout import StoreFormat
from mqstore.storage.seams import Seams
from mqstore.storage.tables.change_journal import TableChange
from mqstore.storage.tables.journaled_table import JournaledTable
from mqstore.storage.tables.table import integer
from mqstore.storage.tables.table_text import JsonObject

_GROUPS = "groupFilterData"


@dataclass(frozen=True, slots=True)
class FilterData:
    """One subscription. Times are milliseconds since the epoch."""

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    """Increases with each registration."""
    born_ms: int
    """Messages stored after this time may have the subscription's bits in ConsumeQueueExt."""
    dead_ms: int = 0
    """Time at which the last consumer left; 0, or before the birth, while there are consumers."""
    bits: int = 0
    """Bits of a bitmap."""
    positions: tuple[int, ...] = ()
    """Positions of this subscription's bits in a bitmap."""

    @property
    def is_dead(self) -> bool:
        """Whether the subscription was removed."""
        return self.dead_ms >= self.born_ms


class ConsumerFilters(JournaledTable):
    """FilterData by topic and group; unknown fields are kept."""

    file_name = "consumerFilter.json"
    table_name = "filterDataByTopic"

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams, journal: Path) -> None:
        super().__init__(path, store_format, seams, journal)
        self._dead: set[tuple[str, str]] | None = None
        """Topic and group of each dead subscription; None until they are first requested."""

    def get(self, topic: str, group: str) -> FilterData | None:
        """The group's subscription to a topic, or None."""
        with self._lock:
            found = self._of_topic(topic).get(group)
            return _data_from(topic, group, found) if isinstance(found, dict) else None

    def all(self) -> list[FilterData]:
        """All subscriptions, by topic and group."""
        with self._lock:
            topics = sorted(self.entries, key=str)
            return [each for topic in topics for each in self.of_topic(str(topic))]

    def of_topic(self, topic: str) -> list[FilterData]:
        """The subscriptions to a topic, by group, dead ones included."""
        with self._lock:
            return [
                _data_from(topic, str(group), found)
                for group, found in sorted(self._of_topic(topic).items(), key=_name)
                if isinstance(found, dict)
            ]

    def dead(self) -> list[FilterData]:
        """The dead subscriptions, by topic and group."""
        with self._lock:
            found = [self.get(topic, group) for topic, group in sorted(self._dead_places())]
            return [each for each in found if each is not None]

    def put(self, data: FilterData) -> None:
        """Add or replace a subscription."""
        with self._lock:
            of_topic = self.entries.get(data.topic) or {_GROUPS: {}, "topic": data.topic}
            known = of_topic[_GROUPS].get(data.group)
            merged = {**(known if isinstance(known, dict) else {}), **_data_to(data)}
            of_topic[_GROUPS][data.group] = dict(sorted(merged.items()))
            self._put(data.topic, of_topic)
            dead, place = self._dead_places(), (data.topic, data.group)
            dead.add(place) if data.is_dead else dead.discard(place)

    def remove(self, topic: str, group: str) -> None:
        """Remove a subscription, if there is one."""
        with self._lock:
            groups = self._of_topic(topic)
            if groups.pop(group, None) is not None:
                self._dead_places().discard((topic, group))
                self._put(topic, self.entries[topic]) if groups else self._pop(topic)

    def remove_topic(self, topic: str) -> bool:
        """Remove all subscriptions to a topic; returns whether there were any."""
        with self._lock:
            self._dead = None
            return self._pop(topic)

    def _apply(self, changes: Iterable[TableChange]) -> None:
        with self._lock:
            self._dead = None
            super()._apply(changes)

    def _forget_all(self) -> None:
        super()._forget_all()
        self._dead = None

    def _dead_places(self) -> set[tuple[str, str]]:
        if self._dead is None:
            self._dead = {(each.topic, each.group) for each in self.all() if each.is_dead}
        return self._dead

    def _of_topic(self, topic: str | int) -> JsonObject:
        found = self.entries.get(topic)
        groups = found.get(_GROUPS) if isinstance(found, dict) else None
        return groups if isinstance(groups, dict) else {}


def _data_to(data: FilterData) -> JsonObject:
    return {
        "bloomFilterData": {"bitNum": data.bits, "bitPos": list(data.positions)},
        "bornTime": data.born_ms,
        "clientVersion": data.client_version,
        "consumerGroup": data.group,
        "dead": data.is_dead,
        "deadTime": data.dead_ms,
        "expression": data.expression,
        "expressionType": data.expression_type,
        "topic": data.topic,
    }


def _data_from(topic: str, group: str, found: JsonObject) -> FilterData:
    bloom = found.get("bloomFilterData")
    bloom = bloom if isinstance(bloom, dict) else {}
    positions = bloom.get("bitPos")
    return FilterData(
        topic=topic,
        group=group,
        expression=str(found.get("expression", "")),
        expression_type=str(found.get("expressionType", "")),
        client_version=integer(found.get("clientVersion"), 0),
        born_ms=integer(found.get("bornTime"), 0),
        dead_ms=integer(found.get("deadTime"), 0),
        bits=integer(bloom.get("bitNum"), 0),
        positions=_integers(positions) if isinstance(positions, list) else (),
    )


def _integers(values: list[Any]) -> tuple[int, ...]:
    return tuple(value for value in values if isinstance(value, int))


def _name(entry: tuple[str | int, Any]) -> str:
    return str(entry[0])
