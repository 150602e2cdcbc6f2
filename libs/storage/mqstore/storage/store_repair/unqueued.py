"""Whole records of the log that are in no queue: another has their queue offset, or it is
impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqstore.storage.codec import record
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import QUEUED_TYPES, TRANSACTION_MASK
from mqstore.storage.recovery.view import QueueTable, Segment
from mqstore.storage.topic_names import is_safe_path, raw_name
from mqstore.storage.verify.store_at_rest import StoreAtRest


def find_unqueued(store: StoreAtRest, progress: Callable[[int, int], None]) -> Iterator[Record]:
    """Yield the whole records whose own queue names another record, or none, at their queue offset,
    or names them out of order.

    Reads the whole log.
    """
    queues = QueueTable(store.view)
    try:
        for segment in store.view.segments.usable:
            progress(segment.base - store.min_offset, store.end - store.min_offset)
            yield from (
                found for found in _records(store, segment) if not _is_queued(queues, found)
            )
    finally:
        queues.close()


def _records(store: StoreAtRest, segment: Segment) -> Iterator[Record]:
    with store.view.map_segment(segment) as data:
        end = max(0, min(len(data), store.end - segment.base))
        for found in record.scan(data, 0, end, segment.base, verify_body=True):
            if isinstance(found, Record) and _belongs_to_a_queue(store, found):
                yield found


def _belongs_to_a_queue(store: StoreAtRest, found: Record) -> bool:
    is_queued = found.sys_flag & TRANSACTION_MASK in QUEUED_TYPES
    is_deleted = found.physical_offset < store.deleted.below(found.topic)
    return is_queued and not found.is_tombstone and not is_deleted and is_safe_path(found.topic)


def _is_queued(queues: QueueTable, found: Record) -> bool:
    queue = queues.get(raw_name(found.topic), found.queue_id)
    number = found.queue_offset
    if queue.entry(number) != (found.physical_offset, found.size):
        return False
    before = queue.entry(number - 1) if number > queue.first_index else None
    return before is None or before[0] < found.physical_offset
