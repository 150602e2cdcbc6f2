"""Which messages of a queue a pull wants: first by what its entries say, then by the messages.

A filter of another kind is one more class with the two methods of ``PullFilter``.
Facts of tag expressions: FilterAPI and DefaultMessageFilter of 4.9.7 and 5.4.0; RocketMQ's broker
compares the hash only, and its clients the tag: here both are compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from mqstore.storage._kernel import Tags, count_unflagged, count_untagged
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import FilterError
from mqstore.storage.filter.expression import Filter
from mqstore.storage.layout import EXT_ADDRESS_MIN, PROPERTY_RETRY_TOPIC
from mqstore.storage.tables.consumer_filters import FilterData

EVALUATED_MAX: Final = 10_000
"""Messages that one call evaluates, as many as it looks at queue entries."""
CHEAP_LENGTH: Final = 64
"""Characters of an expression that one call evaluates over EVALUATED_MAX: some 0.2 s of CPU."""
EVALUATED_MIN: Final = 128
"""A longer one is evaluated over proportionally fewer, but so many; 4 KB take 1 ms a message."""
TAGS_MAX: Final = 100
"""Tags of one expression."""
ALL_TAGS: Final = "*"
_OR: Final = "||"
_REPLACEMENT: Final = "\ufffd"


class UnitRun(NamedTuple):
    """One file of a queue's ConsumeQueueExt."""

    view: memoryview
    base: int
    """Where it begins among the queue's units."""

    def holds(self, address: int) -> bool:
        return 0 <= address - EXT_ADDRESS_MIN - self.base < len(self.view)


class PullFilter(Protocol):
    """Safe from any thread."""

    @property
    def tags(self) -> Tags | None:
        """Where it is nothing but these, and bytes alone tell whether a record has one."""

    def passed_over(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """How many of ``count`` queue entries (20 bytes each, from ``position`` on) come before
        the first whose message may be wanted, or whose unit is not in ``units``."""

    @property
    def evaluated_max(self) -> int:
        """Messages that one call evaluates before it answers."""

    def matches(self, found: Record) -> bool:
        """Whether a message is wanted."""


class TagFilter:
    """``A || B``: messages with one of these tags."""

    evaluated_max = EVALUATED_MAX

    def __init__(self, tags: frozenset[str]) -> None:
        self._names = tags
        self._codes = array("q", sorted({properties.tags_code(tag) for tag in tags}))
        self.tags = _told_by_bytes(tags)

    def passed_over(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        return count_untagged(entries, position, count, self._codes, *(units or ()))

    def matches(self, found: Record) -> bool:
        return found.tags in self._names


@dataclass(frozen=True, slots=True)
class SubscribedBits:
    """What the bitmaps of messages say of one subscription."""

    bits: int
    """Of a bitmap; others were made for another set of subscriptions."""
    positions: tuple[int, ...]
    """All of them are set where the message is wanted, and maybe elsewhere."""
    born_ms: int
    """Only of messages stored after it."""


class SqlFilter:
    """A SQL92 expression over properties; RocketMQ's rules for nulls and types."""

    def __init__(self, expression: Filter, known: SubscribedBits | None = None) -> None:
        """``known``: of the subscription that has this expression."""
        self._expression = expression
        self.tags = None
        self.known = known
        self._positions = array("q", known.positions if known is not None else ())
        characters = max(len(expression.text), CHEAP_LENGTH)
        self.evaluated_max = max(EVALUATED_MIN, EVALUATED_MAX * CHEAP_LENGTH // characters)

    def passed_over(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        if self.known is None or units is None:
            return 0
        bits, born_ms = self.known.bits, self.known.born_ms
        return count_unflagged(entries, position, count, self._positions, bits, born_ms, *units)

    def matches(self, found: Record) -> bool:
        return self._expression.matches(found.properties or {})

    def informed(self, subscriptions: Iterable[FilterData]) -> SqlFilter:
        """With the bits of that one of a topic's subscriptions which has the same expression for
        longest; whose it is does not matter."""
        same = (each for each in subscriptions if each.expression == self._expression.text)
        with_bits = [each for each in same if each.positions and each.bits]
        if not with_bits:
            return self
        first = min(with_bits, key=attrgetter("born_ms"))
        bits = SubscribedBits(first.bits, first.positions, first.born_ms)
        return SqlFilter(self._expression, bits)


class RetryFilter:
    """Of messages that a group sent back: those that it wants of the topics where they were first.

    The group's expression there goes instead of one that the pull has. As filterSupportRetry has
    it: ExpressionForRetryMessageFilter of 4.9.7 and 5.4.0. The latter heeds it only in a pull by
    an expression.
    """

    def __init__(
        self, tags: TagFilter | None, expression_of: Callable[[str], Filter | None]
    ) -> None:
        """``expression_of`` a topic; None where all of it is wanted."""
        self._of_tags = tags
        self.tags = None
        self.evaluated_max = EVALUATED_MAX // 10  # by expressions of any length
        self._expression_of = expression_of

    def passed_over(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        if self._of_tags is None:
            return 0
        return self._of_tags.passed_over(entries, position, count, units)

    def matches(self, found: Record) -> bool:
        if self._of_tags is not None and not self._of_tags.matches(found):
            return False
        known = found.properties or {}
        topic = known.get(PROPERTY_RETRY_TOPIC)
        expression = None if topic is None else self._expression_of(topic)
        return expression is None or expression.matches(known)


def parse_tags(expression: str) -> TagFilter | None:
    """``A || B``; None where all messages are wanted: nothing but blanks, or ``*``.

    Raises FilterError for an expression without any tag, or with too many.
    """
    if expression.strip() in ("", ALL_TAGS):
        return None
    tags = frozenset(tag for part in expression.split(_OR) if (tag := part.strip()))
    if not tags:
        raise FilterError(f"{expression[:100]!r} names no tag; write `A || B`, or `*` for all")
    if len(tags) > TAGS_MAX:
        raise FilterError(f"{len(tags)} tags are over {TAGS_MAX}; ask for fewer at a time")
    return TagFilter(tags)


def _told_by_bytes(tags: frozenset[str]) -> Tags | None:
    """None with a tag that Java may also read from other bytes: from malformed UTF-8."""
    try:
        texts = [tag.encode() for tag in tags]
    except UnicodeEncodeError:
        return None
    if any(_REPLACEMENT in tag for tag in tags):
        return None
    return Tags(array("q", map(properties.tags_code, tags)), texts)
