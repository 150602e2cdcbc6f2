"""Computes from the counts which readers lose which messages; without Spark.

``past`` is the number of marks of a queue at or below the offset of a message: see ``counting``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqstore.jobs.expiry.counts import Count
from mqstore.jobs.expiry.facts import Reader, ShardFacts
from mqstore.storage.retention import Hold

OVERDUE_MS: Final = 60_000
"""Milliseconds after its due time until an undelivered message counts as not being delivered."""


@dataclass(slots=True)
class Loss:
    """Messages that a reader has not consumed when retention deletes them.

    Sizes in bytes; ``oldest_ms`` is the earliest store time, ``goes_ms`` the earliest deletion.
    """

    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    goes_ms: int | None = None

    def add(self, messages: int, size: int, oldest_ms: int | None, goes_ms: int | None) -> None:
        """Add messages and their bytes; the earlier times win."""
        self.messages += messages
        self.bytes += size
        self.oldest_ms = _least(self.oldest_ms, oldest_ms)
        self.goes_ms = _least(self.goes_ms, goes_ms)


@dataclass(frozen=True, slots=True)
class Places:
    """The readers of a shard, and the marks of each queue: their next offsets, ascending."""

    readers: Sequence[Reader]
    marks: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    _of_topic: dict[str, list[Reader]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, facts: ShardFacts) -> Places:
        """The places of all readers of a shard."""
        places = cls(list(facts.readers()))
        found: dict[tuple[str, int], set[int]] = defaultdict(set)
        for reader in places.readers:
            places._of_topic[reader.topic].append(reader)
            for queue_id, offset in reader.offsets.items():
                found[reader.topic, queue_id].add(offset)
        places.marks.update({queue: sorted(offsets) for queue, offsets in found.items()})
        return places

    def waiting(self, count: Count) -> Iterator[Reader]:
        """The readers that have not consumed these messages."""
        if count.past < 0:
            return
        marks = self.marks.get((count.topic, count.queue_id), [])
        for reader in self._of_topic.get(count.topic, ()):
            if not reader.has_to_do_with(count.queue_id):
                continue
            place = reader.place_in(count.queue_id)
            if place is None or count.past > bisect_left(marks, place):
                yield reader

    def groups_of(self, topic: str) -> int:
        """Number of consumer groups of a topic."""
        return sum(each.kind == "group" for each in self._of_topic.get(topic, ()))


def holds(facts: ShardFacts, places: Places, counts: Iterable[Count]) -> list[Hold]:
    """The holds that keep segments: pins, and what keepForGroups and delivery still need."""
    if not facts.honours_holds:
        return []
    kept = [name.strip() for name in facts.config.keep_for_groups.split(";") if name.strip()]
    needed: dict[tuple[str, str], int] = {}
    for count in counts:
        for reader in places.waiting(count):
            if reader.kind == "delay" or reader.name in kept:
                key = reader.kind, reader.name
                needed[key] = min(needed.get(key, count.first_offset), count.first_offset)
    known = {group for group, _ in facts.consumed}
    needed |= {("group", name): 0 for name in kept if name not in known}
    derived = [
        Hold.model_validate(
            {"kind": kind, "name": name, "from_offset": offset, "to_offset": None, "until_ms": None}
        )
        for (kind, name), offset in sorted(needed.items())
    ]
    return [*facts.pins, *derived]


def losses(
    facts: ShardFacts, places: Places, counts: Iterable[Count]
) -> dict[tuple[int, int, str, str, str], Loss]:
    """Losses by plan, horizon, kind, reader's name and topic."""
    found: dict[tuple[int, int, str, str, str], Loss] = defaultdict(Loss)
    for count in counts:
        for reader in places.waiting(count):
            if reader.kind == "delay" and _is_delivered_before(facts, reader, count):
                continue
            key = count.plan, count.horizon, reader.kind, reader.name, count.topic
            found[key].add(count.messages, count.bytes, count.oldest_ms, count.goes_ms)
    return dict(found)


def _is_delivered_before(facts: ShardFacts, reader: Reader, count: Count) -> bool:
    """Whether delivery is up to date and delivers the last of the messages before deletion."""
    level = int(reader.name)
    if count.oldest_ms is None or count.newest_ms is None or count.goes_ms is None:
        return False
    first_due = facts.levels.delivery_time(level, count.oldest_ms)
    last_due = facts.levels.delivery_time(level, count.newest_ms)
    return first_due + OVERDUE_MS >= facts.now_ms and last_due < count.goes_ms


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
