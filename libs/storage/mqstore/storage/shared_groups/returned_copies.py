"""Finds, at an opening, messages whose return is in the log but not in the saved state.

A copy of a returned message is in the log before its return is answered, and the acknowledgement of
the message itself is saved later. After a kill between the two the copy shows that the message is
settled. It names it by RETURNED_MESSAGE_ID, or by ORIGIN_MESSAGE_ID where that is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from mqstore.storage.codec import message_id
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETURNED_MESSAGE_ID,
    SCHEDULE_TOPIC,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.shared_groups.saved_leases import Place
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX


def find(store: MessageStore, start: int, end: int) -> Iterator[tuple[Place, int]]:
    """Yield the place and the queue offset of each message of which a copy is in the log from one
    physical offset to before another."""
    if start >= end:
        return
    for queue in store.queues.of_topic(SCHEDULE_TOPIC):
        for copy in _copies(store, queue, start, end):
            topic = (copy.properties or {}).get(PROPERTY_REAL_TOPIC, "")
            if topic.startswith(RETRY_PREFIX):
                yield from _original(store, topic.removeprefix(RETRY_PREFIX), copy)
    for topic in store.queues.topics():
        for queue in store.queues.of_topic(topic) if topic.startswith(DLQ_PREFIX) else ():
            for copy in _copies(store, queue, start, end):
                yield from _original(store, topic.removeprefix(DLQ_PREFIX), copy)


def _copies(store: MessageStore, queue: ConsumeQueue, start: int, end: int) -> Iterator[Record]:
    for index, entry in queue.entries(queue.find_by_physical(start), queue.max_index):
        if start <= entry.physical_offset < end:
            with suppress(StorageError):
                found = store.log.record_at(entry.physical_offset, with_body=False)
                if found.queue_offset == index:  # else the entry fills a hole
                    yield store.log.record_at(entry.physical_offset)


def _original(store: MessageStore, group: str, copy: Record) -> Iterator[tuple[Place, int]]:
    table = copy.properties or {}
    text = table.get(PROPERTY_RETURNED_MESSAGE_ID) or table.get(PROPERTY_ORIGIN_MESSAGE_ID, "")
    with suppress(StorageError):
        found = store.log.record_at(message_id.decode(text)[1])
        if found.body == copy.body:
            yield Place(group, found.topic, found.queue_id), found.queue_offset
