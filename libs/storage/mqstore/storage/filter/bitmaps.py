"""Evaluates subscriptions over a message: the bits that dispatch writes into ConsumeQueueExt.

Source: CommitLogDispatcherCalcBitMap of 4.9.7 and 5.4.0. As there, a subscription counts until it
is removed from the table, even when no consumer uses it, and an expression that cannot be evaluated
over a message does not match it.
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
class _Subscription:
    expression: Filter
    positions: tuple[int, ...]
    born_ms: int


class FilterBitmaps:
    """The subscriptions of a store. Any thread may read; one at a time may ``replace``."""

    def __init__(
        self, bloom: BloomFilter, store_format: StoreFormat, subscriptions: Iterable[FilterData]
    ) -> None:
        self._bloom = bloom
        self._format = store_format
        self._by_topic: dict[str, tuple[_Subscription, ...]] = {}
        for topic, found in groupby(sorted(subscriptions, key=_TOPIC), _TOPIC):
            self.replace(topic, found)

    def has(self, topic: str) -> bool:
        """Whether a topic has subscriptions."""
        return topic in self._by_topic

    def replace(self, topic: str, subscriptions: Iterable[FilterData]) -> None:
        """Replace all subscriptions of a topic."""
        wanted = tuple(
            each for data in subscriptions if (each := self._subscription_of(data)) is not None
        )
        if wanted:
            self._by_topic[topic] = wanted
        else:
            self._by_topic.pop(topic, None)

    def bitmap(
        self, topic: str, properties: Mapping[str, str], born_before_ms: int | None = None
    ) -> bytes:
        """The bits of the subscriptions that match a message; empty when the topic has none.

        With ``born_before_ms``, only subscriptions that were born before that time.
        """
        subscriptions = self._by_topic.get(topic)
        if subscriptions is None:
            return b""
        bits = self._bloom.new_bitmap()
        for each in subscriptions:
            is_due = born_before_ms is None or each.born_ms < born_before_ms
            if is_due and each.expression.matches(properties):
                add(bits, each.positions)
        return bytes(bits)

    def _subscription_of(self, data: FilterData) -> _Subscription | None:
        if not self._bloom.accepts(data.bits, data.positions):
            return None
        try:
            expression = compile_expression(data.expression, self._format)
        except FilterError as error:
            log.warning(
                "no bitmaps for group %s and topic %s, whose expression is refused: %s",
                *(data.group, data.topic, error),
            )
            return None
        return _Subscription(expression, data.positions, data.born_ms)
