"""The order in which a receive takes from queues."""

from __future__ import annotations

from typing import Final, TypeVar

from mqstore.storage.message_store import MessageStore
from mqstore.storage.shared_groups.saved_leases import Place

_TYPE: Final = "message.type"
_PRIORITY: Final = "PRIORITY"
Wanted = TypeVar("Wanted")


def in_turn(
    store: MessageStore, places: list[tuple[Wanted, Place]], turn: int
) -> list[tuple[Wanted, Place]]:
    """Return the queues, beginning with another one each turn; among those of a priority topic, the
    one with the highest number is first, as POP takes them (PopMessageProcessor of 5.4.0)."""
    start = turn % len(places) if places else 0
    found = places[start:] + places[:start]
    for topic in {place.topic for _, place in places}:
        if store.topic(topic).attributes.get(_TYPE) == _PRIORITY:
            at = [number for number, (_, place) in enumerate(found) if place.topic == topic]
            by_priority = sorted((found[number] for number in at), key=_queue, reverse=True)
            for number, each in zip(at, by_priority, strict=True):
                found[number] = each
    return found


def _queue(found: tuple[object, Place]) -> int:
    return found[1].queue_id
