"""Which messages of a queue a pull wants: first by what its entries say, then by the messages.

A filter of another kind is one more class with the two methods of ``PullFilter``.
Facts of tag expressions: FilterAPI and DefaultMessageFilter of 4.9.7 and 5.4.0; RocketMQ's broker
compares the hash only, and its clients the tag: here both are compared.
"""

from __future__ import annotations

from array import array
from typing import Final, Protocol

from mqstore.storage._kernel import count_untagged
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import FilterError
from mqstore.storage.filter.expression import Filter

TAGS_MAX: Final = 100
"""Tags of one expression."""
ALL_TAGS: Final = "*"
_OR: Final = "||"


class PullFilter(Protocol):
    """Safe from any thread."""

    def passed_over(self, entries: memoryview, position: int, count: int) -> int:
        """How many of ``count`` queue entries (20 bytes each, from ``position`` on) come before
        the first whose message may be wanted."""

    def matches(self, found: Record) -> bool:
        """Whether a message is wanted."""


class TagFilter:
    """``A || B``: messages with one of these tags."""

    def __init__(self, tags: frozenset[str]) -> None:
        self._tags = tags
        self._codes = array("q", sorted({properties.tags_code(tag) for tag in tags}))

    def passed_over(self, entries: memoryview, position: int, count: int) -> int:
        return count_untagged(entries, position, count, self._codes)

    def matches(self, found: Record) -> bool:
        return found.tags in self._tags


class SqlFilter:
    """A SQL92 expression over properties; RocketMQ's rules for nulls and types."""

    def __init__(self, expression: Filter) -> None:
        self._expression = expression

    def passed_over(self, entries: memoryview, position: int, count: int) -> int:
        return 0

    def matches(self, found: Record) -> bool:
        return self._expression.matches(found.properties or {})


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
