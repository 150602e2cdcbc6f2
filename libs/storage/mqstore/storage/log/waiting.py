"""The place of a delayed message, until its delivery to its own topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mqstore.storage._kernel import Placement
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.layout import (
    PROPERTY_DELAY,
    PROPERTY_DELIVER_AT,
    PROPERTY_TIMER_OUT,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

_TIME: Final = re.compile(r"[0-9]{1,18}")


class WaitingPlacement(Placement):
    """The place of a delayed message in ``topic``, where it waits for its delivery at ``due_ms``.

    ``due_ms`` is None for a record that names no time.
    """

    __slots__ = ("due_ms", "topic")

    def __init__(self, place: Placement, topic: str, due_ms: int | None) -> None:
        super().__init__(
            place.physical_offset,
            place.size,
            place.queue_id,
            place.queue_offset,
            place.store_timestamp_ms,
            place.store_host,
        )
        self.topic = topic
        self.due_ms = due_ms


def placement_in(
    topic: str, place: Placement, properties: Mapping[str, str], levels: DelayLevels
) -> Placement:
    """Return the place of a message that is stored in ``topic`` with these properties."""
    if topic == TIMER_TOPIC:
        return WaitingPlacement(place, topic, timed_delivery(properties))
    if topic == SCHEDULE_TOPIC:
        due_ms = levels.queue_code(properties.get(PROPERTY_DELAY), place.store_timestamp_ms)
        return WaitingPlacement(place, topic, due_ms)
    return place


def timed_delivery(properties: Mapping[str, str]) -> int | None:
    """Return the delivery time of a message of rmq_sys_wheel_timer; a broker that got a delay
    stores the timer's only. In milliseconds since the epoch; None without one."""
    for name in (PROPERTY_DELIVER_AT, PROPERTY_TIMER_OUT):
        if _TIME.fullmatch(text := properties.get(name, "")):
            return int(text)
    return None
