"""Counts of the messages of shared groups by state, for lags and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from mqstore.storage.errors import QueueUnknown
from mqstore.storage.layout import PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC
from mqstore.storage.message_store import MessageStore
from mqstore.storage.topic_names import RETRY_PREFIX

DELAYED_MAX: Final = 10_000
"""Number of delayed messages that are read for one count, about 50 ms of CPU time."""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """The messages of a group in one queue that a receive has reached."""

    leased: int
    """Leased to a consumer."""
    done: int
    """Behind the group's offset, and acknowledged or excluded by its filter."""


def count_returned(store: MessageStore) -> Counter[str] | None:
    """Count the returned messages that wait for their delay, by group.

    Returns None when more than DELAYED_MAX delayed messages wait, of any kind.
    """
    levels = [each for each in store.delays.status() if each.pending]
    if sum(each.pending for each in levels) > DELAYED_MAX:
        return None
    found: Counter[str] = Counter()
    for each in levels:
        _count_level(store, each.level - 1, max(each.queue_min, each.delivered_up_to), found)
    return found


def _count_level(store: MessageStore, queue_id: int, start: int, found: Counter[str]) -> None:
    for _ in range(1 + DELAYED_MAX // _BATCH):
        try:
            pull = store.lookups.records(SCHEDULE_TOPIC, queue_id, start, _BATCH)
        except QueueUnknown:
            return
        for record in pull.records:
            topic = (record.properties or {}).get(PROPERTY_REAL_TOPIC, "")
            if topic.startswith(RETRY_PREFIX):
                found[topic.removeprefix(RETRY_PREFIX)] += 1
        if pull.next_offset <= start or pull.next_offset >= pull.max_offset:
            return
        start = pull.next_offset
