"""Filters of pulls: applied first to the queue entries, then to the messages.

A new kind of filter is one more class with the methods of ``PullFilter``. Facts of tag expressions:
FilterAPI and DefaultMessageFilter of 4.9.7 and 5.4.0; RocketMQ's broker compares the hash only, and
its clients the tag: here both are compared.
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
from mqstore.storage.layout import EXT_ADDRESS_MIN, PROPERTY_ORIGIN_GROUP, PROPERTY_RETRY_TOPIC
from mqstore.storage.tables.consumer_filters import FilterData
from mqstore.storage.topic_names import TAG_SEPARATOR

EVALUATED_MAX: Final = 10_000
"""Maximum number of messages that one call evaluates: that of queue entries."""
CHEAP_LENGTH: Final = 64
"""Characters of an expression up to which one call evaluates EVALUATED_MAX messages: some 0.2 s of
CPU."""
EVALUATED_MIN: Final = 128
"""A longer expression is evaluated over proportionally fewer messages, but at least this many; 4 KB
take 1 ms a message."""
TAGS_MAX: Final = 100
"""Maximum number of tags of one expression."""
ALL_TAGS: Final = "*"
_REPLACEMENT: Final = "\ufffd"


class UnitRun(NamedTuple):
    """One file of a queue's ConsumeQueueExt."""

    view: memoryview
    base: int
    """Its first address among the queue's units."""

    def holds(self, address: int) -> bool:
        """Whether the file holds this address."""
        return 0 <= address - EXT_ADDRESS_MIN - self.base < len(self.view)


class PullFilter(Protocol):
    """A filter. Safe from any thread."""

    @property
    def tags(self) -> Tags | None:
        """The tags, when they are the whole filter and can be compared by bytes; else None."""

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """Count the queue entries (20 bytes each, from ``position``, at most ``count``) before the
        first one whose message may match, or whose unit is not in ``units``."""

    @property
    def evaluated_max(self) -> int:
        """Maximum number of messages that one call evaluates."""

    def matches(self, found: Record) -> bool:
        """Whether a message matches."""


class TagFilter:
    """``A || B``: messages with one of these tags."""

    evaluated_max = EVALUATED_MAX

    def __init__(self, tags: frozenset[str]) -> None:
        self._names = tags
        self._codes = array("q", sorted({properties.tags_code(tag) for tag in tags}))
        self.tags = _byte_comparable(tags)

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """Count the leading entries without one of the tags' codes."""
        return count_untagged(entries, position, count, self._codes, *(units or ()))

    def matches(self, found: Record) -> bool:
        """Whether the message has one of the tags."""
        return found.tags in self._names


@dataclass(frozen=True, slots=True)
class SubscriptionBits:
    """The bits of one subscription in messages' bitmaps."""

    bits: int
    """Bits of a bitmap; bitmaps of another size are of another set of subscriptions."""
    positions: tuple[int, ...]
    """All of these bits are set when the message matches; false positives are possible."""
    born_ms: int
    """Only bitmaps of messages stored after this time count."""


class SqlFilter:
    """A SQL92 expression over properties, with RocketMQ's rules for nulls and types."""

    def __init__(self, expression: Filter, known: SubscriptionBits | None = None) -> None:
        """``known`` are the bits of the subscription that has this expression."""
        self._expression = expression
        self.tags = None
        self.known = known
        self._positions = array("q", known.positions if known is not None else ())
        characters = max(len(expression.text), CHEAP_LENGTH)
        self.evaluated_max = max(EVALUATED_MIN, EVALUATED_MAX * CHEAP_LENGTH // characters)

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """Count the leading entries whose units exclude the subscription."""
        if self.known is None or units is None:
            return 0
        bits, born_ms = self.known.bits, self.known.born_ms
        return count_unflagged(entries, position, count, self._positions, bits, born_ms, *units)

    def matches(self, found: Record) -> bool:
        """Whether the expression is true for the message."""
        return self._expression.matches(found.properties or {})

    def with_subscription_bits(self, subscriptions: Iterable[FilterData]) -> SqlFilter:
        """This filter with the bits of the oldest of a topic's subscriptions that has the same
        expression, whatever its group."""
        same = (each for each in subscriptions if each.expression == self._expression.text)
        with_bits = [each for each in same if each.positions and each.bits]
        if not with_bits:
            return self
        first = min(with_bits, key=attrgetter("born_ms"))
        bits = SubscriptionBits(first.bits, first.positions, first.born_ms)
        return SqlFilter(self._expression, bits)


class RetryFilter:
    """Filters messages that a group sent back by its expressions for their first topics.

    The group's expression replaces that of the pull. As filterSupportRetry requests:
    ExpressionForRetryMessageFilter of 4.9.7 and 5.4.0, of which the latter applies it only in a
    pull by an expression.
    """

    def __init__(
        self, tags: TagFilter | None, expression_of: Callable[[str], Filter | None]
    ) -> None:
        """``expression_of`` returns a topic's expression; None when all of its messages match."""
        self._of_tags = tags
        self.tags = None
        self.evaluated_max = EVALUATED_MAX // 10  # expressions of any length
        self._expression_of = expression_of

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """Count the leading entries that the tags exclude."""
        if self._of_tags is None:
            return 0
        return self._of_tags.count_unwanted(entries, position, count, units)

    def matches(self, found: Record) -> bool:
        """Whether the message matches the expression for its first topic."""
        if self._of_tags is not None and not self._of_tags.matches(found):
            return False
        known = found.properties or {}
        topic = known.get(PROPERTY_RETRY_TOPIC)
        expression = None if topic is None else self._expression_of(topic)
        return expression is None or expression.matches(known)


class OriginFilter:
    """Selects the messages of one group in a retry topic whose name may be of two groups.

    ``%RETRY%a_b`` has what group ``a_b`` returned, with the first topic in RETRY_TOPIC, and what
    group ``a`` took of topic ``b`` by POP, with the group in ORIGIN_GROUP (PopReviveService of
    5.4.0). A message with neither is of an earlier 5.x, and of both groups.
    """

    tags = None
    evaluated_max = EVALUATED_MAX

    def __init__(self, group: str, *, is_pop: bool) -> None:
        """``is_pop``: the topic is the group's by POP; else it has what the group returned."""
        self._group = group
        self._is_pop = is_pop

    def count_unwanted(
        self, entries: memoryview, position: int, count: int, units: UnitRun | None
    ) -> int:
        """Return 0: queue entries do not have the group."""
        return 0

    def matches(self, found: Record) -> bool:
        """Whether the message is the group's."""
        known = found.properties or {}
        origin, is_returned = known.get(PROPERTY_ORIGIN_GROUP), PROPERTY_RETRY_TOPIC in known
        if self._is_pop:
            return origin == self._group or (origin is None and not is_returned)
        return origin in (None, self._group) or is_returned


def parse_tags(expression: str) -> TagFilter | None:
    """Parse ``A


    B``; None where all messages match: blanks only, or ``*``.

    Raises FilterError for an expression without any tag, or with too many.
    """
    if expression.strip() in ("", ALL_TAGS):
        return None
    tags = frozenset(tag for part in expression.split(TAG_SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise FilterError(f"{expression[:100]!r} names no tag; write `A || B`, or `*` for all")
    if len(tags) > TAGS_MAX:
        raise FilterError(f"{len(tags)} tags are over {TAGS_MAX}; request fewer at a time")
    return TagFilter(tags)


def _byte_comparable(tags: frozenset[str]) -> Tags | None:
    """The tags for comparison by bytes; None with a tag that Java may also decode from malformed
    UTF-8."""
    try:
        texts = [tag.encode() for tag in tags]
    except UnicodeEncodeError:
        return None
    if any(_REPLACEMENT in tag for tag in tags):
        return None
    return Tags(array("q", map(properties.tags_code, tags)), texts)
