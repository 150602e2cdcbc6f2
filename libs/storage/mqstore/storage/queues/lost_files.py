"""Makes ConsumeQueue files again that are missing before or between others.

A power cut may take a file and leave a later one, as each file's name becomes durable by itself.
Called under the dispatcher's lock, while a recovery dispatches the log from its minimum.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from mqstore.storage.layout import QUEUE_ENTRY_SIZE
from mqstore.storage.queues.queue_holes import has_room

if TYPE_CHECKING:
    from mqstore.storage.queues.consume_queue import ConsumeQueue
    from mqstore.storage.queues.queue_entry import QueueEntry


def make_again(queue: ConsumeQueue, index: int, physical_offset: int) -> bool:
    """Make the file of an entry that a record of the log has, and those missing up to the next one.

    Returns False for an impossible entry: the log up to the record of the next entry has no room
    for so many records. Files that expired are not made: their records are not in the log. Raises
    OSError.
    """
    following = queue.find_by_physical(physical_offset + 1)
    after = queue.entry(following)
    if not 0 <= index < following or after is None:
        return False
    if not has_room(following - index, physical_offset, after.physical_offset):
        return False
    offset = index * QUEUE_ENTRY_SIZE
    _insert(queue, offset - offset % queue.file_size)
    return True


def close_gaps(queue: ConsumeQueue) -> None:
    """Make the files that are missing between others, for entries whose records are in the log no
    more. Raises OSError."""
    last, reached = None, queue.first_index
    following = queue.first_index
    for before, after in pairwise(queue.files.files):
        missing = (after.base_offset - before.end_offset) // QUEUE_ENTRY_SIZE
        if not missing:
            continue
        end = before.end_offset // QUEUE_ENTRY_SIZE
        last, reached = queue.last_before(end, reached) or last, end
        if last is None:
            continue
        following = _first_after(queue, max(following, after.base_offset // QUEUE_ENTRY_SIZE), last)
        named = queue.entry(following)
        if named and has_room(missing, last.physical_offset, named.physical_offset):
            _insert(queue, before.end_offset)


def _first_after(queue: ConsumeQueue, start: int, last: QueueEntry) -> int:
    """The first entry from ``start`` on that names a record behind another's; ``max_index`` without
    one."""
    for index, entry in queue.entries(start, queue.max_index):
        if not entry.is_hole and entry.physical_offset > last.physical_offset:
            return index
    return queue.max_index


def _insert(queue: ConsumeQueue, offset: int) -> None:
    while queue.files.find(offset) is None:
        queue.files.insert(offset)
        offset += queue.file_size
