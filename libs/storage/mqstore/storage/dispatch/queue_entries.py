"""The queue entries of one record: in its own queue, and in further ones.

Source: CommitLogDispatcherBuildConsumeQueue and MultiDispatch of 4.9.7 and 5.4.0. Called by the
dispatcher, with its lock held, for the records that the kernel leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.record import Record
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.dispatch.counts import DispatchCounts
from mqstore.storage.layout import (
    PROPERTY_DELAY,
    QUEUED_TYPES,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    StoreFormat,
)
from mqstore.storage.log.multi_dispatch import dispatched_queues
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.consume_queues import ConsumeQueues, queue_key
from mqstore.storage.queues.queue_entry import Put
from mqstore.storage.topic_names import is_lmq


class Bitmaps(Protocol):
    """Finds the subscriptions that match a message."""

    def has(self, topic: str) -> bool:
        """Whether a topic has subscriptions."""

    def bitmap(
        self, topic: str, properties: Mapping[str, str], born_before_ms: int | None = None
    ) -> bytes:
        """The bits of the matching subscriptions, of all or of those born before a time; empty
        without any."""


class QueueEntries:
    """Puts the entries of records into their queues."""

    def __init__(
        self,
        queues: ConsumeQueues,
        config: StoreConfig,
        counts: DispatchCounts,
        deleted_below: Callable[[str], int],
        bitmaps: Bitmaps | None,
        store_format: StoreFormat,
    ) -> None:
        self._queues = queues
        self._format = store_format
        self._counts = counts
        self._delays = DelayLevels(config.message_delay_level)
        self._light_queue_id_fixed = config.enable_lmq or not config.enable_multi_dispatch
        self._deleted_below = deleted_below
        self._bitmaps = bitmaps
        self._unsettled: set[ConsumeQueue] = set()
        if bitmaps is not None:
            queues.extend(bitmaps.has)

    def put(self, found: Record, touched: set[bytes]) -> None:
        """Put a record's entries; ``touched`` gets the ``queue_key`` of each queue with a new
        entry. Raises OSError."""
        if found.sys_flag & TRANSACTION_MASK not in QUEUED_TYPES:
            return
        if self._put(found, found.topic, found.queue_id, found.queue_offset):
            touched.add(queue_key(found.raw_topic, found.queue_id))
        for topic, offset in dispatched_queues(found, self._format):
            queue_id = self._further_queue_id(topic, found.queue_id)
            if self._put(found, topic, queue_id, offset, is_further=True):
                touched.add(queue_key(topic.encode(), queue_id))

    def settle(self) -> None:
        """Bring fillers up to the entries before them. Raises OSError."""
        while self._unsettled:
            self._unsettled.pop().due_fillers.settle()

    def _put(
        self,
        found: Record,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        is_further: bool = False,
    ) -> bool:
        """Put one entry; returns whether the queue has a new entry."""
        if found.physical_offset < self._deleted_below(topic):
            return False
        queue = self._queues.get_or_create(topic, queue_id)
        if queue is None:
            self._counts.note_refused(
                found, f"topic {topic!r} queue {queue_id} may not become a path"
            )
            return False
        before = queue.max_index
        code = _tags_beside(queue, queue_offset, found)
        if code is None:
            code = self._tags_code(found)
        has_unit = queue.ext is not None and not is_further and not found.is_tombstone
        unit = self._unit(found, code, queue) if has_unit else None
        put = queue.put(queue_offset, found.physical_offset, found.size, code, unit)
        if put is Put.REFUSED:
            self._counts.note_refused(found, f"queue offset {queue_offset} cannot follow {before}")
            return False
        queue.aim_window(queue_offset + 1)
        if queue.due_fillers:
            self._unsettled.add(queue)
        if put is Put.PRESENT:
            self._counts.present += 1
            return False
        if put is Put.DIFFERENT:
            self._counts.different += 1
            return False
        if put is Put.APPENDED and before:
            self._counts.holes_filled += queue_offset - before
        return True

    def _unit(self, found: Record, tags_code: int, queue: ConsumeQueue) -> ExtUnit:
        """The unit of a record's entry, or the unit that an existing entry must have."""
        stored_ms, bitmap = found.store_timestamp_ms, b""
        if self._bitmaps is not None:
            is_there = found.queue_offset < queue.max_index
            born_before_ms = stored_ms if is_there else None
            properties = found.properties or {}
            bitmap = self._bitmaps.bitmap(found.topic, properties, born_before_ms)
        return ExtUnit(tags_code, stored_ms, bitmap)

    def _tags_code(self, found: Record) -> int:
        if found.topic == SCHEDULE_TOPIC:
            delay = (found.properties or {}).get(PROPERTY_DELAY)
            due = self._delays.queue_code(delay, found.store_timestamp_ms)
            if due is not None:
                return due
        return found.tags_code

    def _further_queue_id(self, name: str, queue_id: int) -> int:
        return 0 if self._light_queue_id_fixed and is_lmq(name) else queue_id


def _tags_beside(queue: ConsumeQueue, queue_offset: int, found: Record) -> int | None:
    """The tagsCode of the existing entry of a tombstone: probably that of the lost record."""
    if not found.is_tombstone:
        return None
    entry = queue.entry(queue_offset)
    is_its = entry is not None and entry[:2] == (found.physical_offset, found.size)
    return entry.tags_code if entry is not None and is_its else None
