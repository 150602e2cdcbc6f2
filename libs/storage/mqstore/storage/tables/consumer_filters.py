"""``consumerFilter.json``: which messages of a topic a group wants, as an expression says.

Source: ConsumerFilterManager and ConsumerFilterData of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mqstore.storage.tables.config_tables import JsonObject, Table, integer

_GROUPS = "groupFilterData"


@dataclass(frozen=True, slots=True)
class FilterData:
    """One subscription. Times are milliseconds since the epoch."""

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    """Grows with each registration."""
    born_ms: int
    """Messages stored after it may have their bits in ConsumeQueueExt."""
    dead_ms: int = 0
    """When the last consumer went; 0, or below the birth, while there are some."""
    bits: int = 0
    """Of a bitmap."""
    positions: tuple[int, ...] = ()
    """Of this subscription's bits in it."""

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


class ConsumerFilters(Table):
    """A FilterData by topic and group; fields that we do not know stay as found."""

    file_name = "consumerFilter.json"
    table_name = "filterDataByTopic"

    def get(self, topic: str, group: str) -> FilterData | None:
        with self._lock:
            found = self._of_topic(topic).get(group)
            return _data_from(topic, group, found) if isinstance(found, dict) else None

    def all(self) -> list[FilterData]:
        """By topic and group."""
        with self._lock:
            return [
                _data_from(str(topic), str(group), found)
                for topic in sorted(self.entries, key=str)
                for group, found in sorted(self._of_topic(topic).items(), key=_name)
                if isinstance(found, dict)
            ]

    def of_topic(self, topic: str) -> list[FilterData]:
        """By group, also those that are dead."""
        return [each for each in self.all() if each.topic == topic]

    def put(self, data: FilterData) -> None:
        """Add or replace a subscription."""
        with self._lock:
            of_topic = self.entries.setdefault(data.topic, {_GROUPS: {}, "topic": data.topic})
            known = of_topic[_GROUPS].get(data.group)
            merged = {**(known if isinstance(known, dict) else {}), **_data_to(data)}
            of_topic[_GROUPS][data.group] = dict(sorted(merged.items()))

    def remove(self, topic: str, group: str) -> None:
        """Nothing happens when it is not there."""
        with self._lock:
            groups = self._of_topic(topic)
            groups.pop(group, None)
            if not groups:
                self.entries.pop(topic, None)

    def remove_topic(self, topic: str) -> bool:
        """Whether there were any."""
        with self._lock:
            return self.entries.pop(topic, None) is not None

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
