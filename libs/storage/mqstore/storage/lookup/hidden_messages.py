"""Finds messages that stand in another topic until they are delivered or decided: delayed and half
messages.

The property REAL_TOPIC names their own topic. Facts: ScheduleMessageService, TimerMessageStore and
TransactionalMessageBridge of 4.9.7 and 5.4.0.

Called from ``topic_scan`` and the query service. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from mqstore.storage.codec import cursors
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import HALF_TOPIC, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.storage.lookup.answers import KeyAnswer, ScanRange
from mqstore.storage.lookup.key_query import KeyQuery
from mqstore.storage.lookup.lookups import Lookups


class HiddenKind(StrEnum):
    """The kinds of messages that stand in another topic."""

    DELAYED = "delayed"
    HALF = "half"


_TOPICS: Final = {
    HiddenKind.DELAYED: (SCHEDULE_TOPIC, TIMER_TOPIC),
    HiddenKind.HALF: (HALF_TOPIC,),
}


def topics_of(kinds: Sequence[HiddenKind]) -> tuple[str, ...]:
    """The topics in which messages of these kinds stand, each once."""
    return tuple(topic for kind in HiddenKind if kind in kinds for topic in _TOPICS[kind])


def is_for(found: Record, topic: str) -> bool:
    """Whether a record is a message of a topic, or a hidden one for it."""
    return topic in (found.topic, (found.properties or {}).get(PROPERTY_REAL_TOPIC))


def query_text(query: KeyQuery, hidden: Sequence[str]) -> str:
    """The text that binds a cursor of ``by_key`` to its query."""
    return f"{query!r} {hidden!r}" if hidden else repr(query)


def by_key(
    lookups: Lookups,
    query: KeyQuery,
    hidden: Sequence[str],
    *,
    limit: int,
    cursor: str | None = None,
) -> KeyAnswer:
    """Find by key as ``Lookups.by_key``, also in the hidden topics, newest first."""
    if not hidden:
        return _page(lookups, query, limit, cursor)
    cursor_scope = query_text(query, hidden)
    below = None if cursor is None else cursors.decode(cursor, cursor_scope)
    topics = dict.fromkeys((query.topic, *hidden))
    queries = [KeyQuery(each, query.key, query.from_ms, query.to_ms) for each in topics]
    answers = [
        _page(lookups, each, limit, None if below is None else cursors.encode(below, repr(each)))
        for each in queries
    ]
    # Below the highest offset that one of the queries reached, results of others would be missing.
    reached = [
        cursors.decode(answer.cursor, repr(each))
        for each, answer in zip(queries, answers, strict=True)
        if answer.cursor is not None
    ]
    floor = max(reached, default=0)
    records = [
        record
        for answer in answers
        for record in answer.records
        if record.physical_offset >= floor and is_for(record, query.topic)
    ]
    records.sort(key=lambda each: each.physical_offset, reverse=True)
    if len(records) > limit:
        floor = records[limit - 1].physical_offset
    goes_on = bool(reached) or len(records) > limit
    first = answers[0].scanned
    return KeyAnswer(
        records[:limit],
        [each for answer in answers for each in answer.unreadable if each.physical_offset >= floor],
        cursors.encode(floor, cursor_scope) if goes_on else None,
        not goes_on and all(answer.complete for answer in answers),
        ScanRange(
            first.from_ms,
            first.to_ms,
            sum(answer.scanned.candidates for answer in answers),
            max(answer.scanned.min_offset for answer in answers),
            min(answer.scanned.max_offset for answer in answers),
        ),
    )


def _page(lookups: Lookups, query: KeyQuery, limit: int, cursor: str | None) -> KeyAnswer:
    return lookups.by_key(
        query.topic,
        query.key,
        from_ms=query.from_ms,
        to_ms=query.to_ms,
        limit=limit,
        cursor=cursor,
    )
