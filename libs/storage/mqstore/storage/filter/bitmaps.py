"""Which subscriptions want a message: the bits that dispatch writes into ConsumeQueueExt.

Source: CommitLogDispatcherCalcBitMap of 4.9.7 and 5.4.0. As there, a subscription counts until it
is removed from the table, also while nobody uses it, and an expression that cannot be evaluated
over a message does not want it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from mqstore.storage.errors import FilterError
from mqstore.storage.filter.bloom import BloomFilter, add
from mqstore.storage.filter.expression import Filter, compile_expression
from mqstore.storage.layout import StoreFormat
from mqstore.storage.tables.consumer_filters import FilterData

_TOPIC = attrgetter("topic")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    expression: Filter
    positions: tuple[int, ...]
    born_ms: int


class FilterBitmaps:
    """Over the subscriptions of a store. Any thread may ask; one at a time may ``replace``."""

    def __init__(
        self, bloom: BloomFilter, store_format: StoreFormat, subscriptions: Iterable[FilterData]
    ) -> None:
        self._bloom = bloom
        self._format = store_format
        self._by_topic: dict[str, tuple[_Wanted, ...]] = {}
        for topic, found in groupby(sorted(subscriptions, key=_TOPIC), _TOPIC):
            self.replace(topic, found)

    def has(self, topic: str) -> bool:
        """Whether anybody subscribed to a topic."""
        return topic in self._by_topic

    def replace(self, topic: str, subscriptions: Iterable[FilterData]) -> None:
        """These are all of a topic now."""
        wanted = tuple(each for data in subscriptions if (each := self._wanted(data)) is not None)
        if wanted:
            self._by_topic[topic] = wanted
        else:
            self._by_topic.pop(topic, None)

    def bitmap(
        self, topic: str, properties: Mapping[str, str], born_before_ms: int | None = None
    ) -> bytes:
        """A message's bits: of all subscriptions, or of those born before a time. Empty where
        there is none."""
        subscriptions = self._by_topic.get(topic)
        if subscriptions is None:
            return b""
        bits = self._bloom.empty()
        for each in subscriptions:
            is_due = born_before_ms is None or each.born_ms < born_before_ms
            if is_due and each.expression.matches(properties):
                add(bits, each.positions)
        return bytes(bits)

    def _wanted(self, data: FilterData) -> _Wanted | None:
        if not self._bloom.made(data.bits, data.positions):
            return None
        try:
            expression = compile_expression(data.expression, self._format)
        except FilterError as error:
            log.warning(
                "no bitmaps for group %s and topic %s, whose expression is refused: %s",
                *(data.group, data.topic, error),
            )
            return None
        return _Wanted(expression, data.positions, data.born_ms)
