"""keepForGroups: the offsets from which named consumer groups still need the log."""

from __future__ import annotations

from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues
from mqstore.storage.retention.holds import Hold
from mqstore.storage.tables.config_tables import ConsumerOffsets

SEPARATOR = ";"
HOLES_MAX = 10_000
"""Entries without a record that are skipped in search of one with a record."""


class Groups:
    """Finds the messages that the groups of keepForGroups have not consumed.

    One thread at a time.
    """

    def __init__(self, setting: str, queues: ConsumeQueues, offsets: ConsumerOffsets) -> None:
        self.names = tuple(name.strip() for name in setting.split(SEPARATOR) if name.strip())
        self._queues = queues
        self._offsets = offsets

    def holds(self) -> list[Hold]:
        """One hold for each group that has unconsumed messages in its topics.

        A group without any offset has consumed nothing of any topic.
        """
        if not self.names:
            return []
        topics = self._offsets.groups()
        found = []
        for name in self.names:
            needed = [0] if name not in topics else []
            for topic in topics.get(name, ()):
                needed += self._needed(topic, self._offsets.of(name, topic))
            if needed:
                found.append(_hold(name, min(needed)))
        return found

    def _needed(self, topic: str, consumed: dict[int, int]) -> list[int]:
        """The physical offsets of the next messages of a topic's queues."""
        queues = self._queues.of_topic(topic)
        offsets = (next_record(queue, consumed.get(queue.queue_id, 0)) for queue in queues)
        return [offset for offset in offsets if offset is not None]


def next_record(queue: ConsumeQueue, index: int) -> int | None:
    """Physical offset of the first record at or after an entry; None when there is none.

    Returns 0 (unknown) after HOLES_MAX entries without a record.
    """
    start = max(index, queue.min_index)
    for _, entry in queue.entries(start, start + HOLES_MAX):
        if not entry.is_hole:
            return entry.physical_offset
    return None if start + HOLES_MAX >= queue.max_index else 0


def _hold(name: str, offset: int) -> Hold:
    return Hold(kind="group", name=name, from_offset=offset, to_offset=None, until_ms=None)
