"""Checks a record by itself when the checksum of its block does not match.

Damage wider than one word may affect any record of its block. A record there is served only when
all of these agree; it is then a ``SelfCheckedRecord``:

- its BODYCRC, its ``__CRC32#`` where it has one, its magic and every length in it;
- PHYSICALOFFSET and the offset at which it was read;
- its entry in its ConsumeQueue: topic, queue id, queue offset, physical offset, size and tagsCode;
- properties without a NUL byte, which a lost page leaves.

This verifies the body, the topic, the queue position and TAGS. It does not verify FLAG, hosts,
timestamps, RECONSUMETIMES and the other properties, UNIQ_KEY and KEYS among them, unless the record
has ``__CRC32#``, which covers all of it.

Called from ``log_reads`` and ``record_place``.
"""

from __future__ import annotations

from mqstore.storage.codec import ext_unit
from mqstore.storage.codec.ext_unit import ExtUnit
from mqstore.storage.codec.record import Record, SelfCheckedRecord
from mqstore.storage.layout import EXT_ADDRESS_MAX, EXT_ADDRESS_MIN, SCHEDULE_TOPIC
from mqstore.storage.lookup.views import Entry, QueuesView


def is_proved(found: SelfCheckedRecord, queues: QueuesView) -> bool:
    """Whether a record that decoded without a defect, with its body compared, may be served."""
    if b"\0" in found.raw_properties or found.store_timestamp_ms <= 0:
        return False
    entry, unit = entry_of(queues, found)
    if entry is None or (entry.physical_offset, entry.size) != (found.physical_offset, found.size):
        return False
    if found.has_crc_property:
        return True
    has_body = bool(found.body)
    tags_code = entry.tags_code if unit is None else unit.tags_code
    if found.topic == SCHEDULE_TOPIC:  # the entry has a delivery time in place of the code
        return has_body
    # An empty body has no BODYCRC: the message is its properties, and its tags prove them.
    return tags_code == found.tags_code and (has_body or tags_code != 0)


def entry_of(queues: QueuesView, found: Record) -> tuple[Entry | None, ExtUnit | None]:
    """The queue entry at the record's queue offset, and the entry's ConsumeQueueExt unit."""
    queue = queues.get(found.topic, found.queue_id)
    entry = None if queue is None else queue.entry(found.queue_offset)
    if queue is None or entry is None or entry.tags_code > EXT_ADDRESS_MAX:
        return entry, None
    place = queue.units(entry.tags_code)
    if place is None:
        return entry, None
    view, base = place
    return entry, ext_unit.decode(view, entry.tags_code - EXT_ADDRESS_MIN - base)
