"""Names the record, and its field, that a change on the disk touches.

A block's CRC-32C and parity locate the one changed word, and give its original bits: with these
restored, the record reads as it was written, whichever field was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mqstore.storage._kernel import RecordSearch, locate_damage
from mqstore.storage.codec import record
from mqstore.storage.codec.record import Record
from mqstore.storage.layout import SysFlag
from mqstore.storage.metadata.changed_word import find_changed_word, restore_words
from mqstore.storage.metadata.sealed_json import Value

BLANK: Final = "BLANK"
"""The field of bytes outside of records: a segment's unused rest."""
REACHES: Final = (64 << 10, 8 << 20)
"""Bytes around the change in which its record is searched, one after the other."""


class ChangedBytes(Value):
    """Bytes of the log that were changed; offsets are physical, in bytes.

    Without a field the change is wider than one word: it may touch any record of these bytes, and
    all of them are rejected.
    """

    offset: int
    length: int
    found_at_ms: int
    field: str | None = None
    """RocketMQ's name of the field, as BODY or QUEUEOFFSET; BLANK outside of records."""
    record_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


def explain(
    view: memoryview,
    end: int,
    entries: memoryview,
    base: int,
    number: int,
    now_ms: int,
    *,
    reaches: Sequence[int] = REACHES,
) -> ChangedBytes:
    """Explain the change in a block that does not match its checksum; ``end`` is the end of the
    segment's used bytes. Takes twice the greatest of ``reaches`` of memory."""
    start, stop = locate_damage(view, entries, base, number)
    found = ChangedBytes(offset=base + start, length=stop - start, found_at_ms=now_ms)
    word = find_changed_word(view, entries, base, number)
    if word is None:
        return found
    for reach in reaches:
        low, high = max(0, start - reach), min(end, stop + reach)
        held = _holder(memoryview(restore_words(view, low, high, [word])), start - low, base + low)
        if held is not None:
            return found.model_copy(
                update={
                    "field": field_at(held, base + start - held.physical_offset),
                    "record_offset": held.physical_offset,
                    "topic": held.topic,
                    "queue_id": held.queue_id,
                    "queue_offset": held.queue_offset,
                }
            )
    return found.model_copy(update={"field": BLANK})


def field_at(found: Record, position: int) -> str:
    """The field that contains byte ``position`` of a record."""
    for name, size in _fields(found):
        if position < size:
            return name
        position -= size
    return "PROPERTIES"


def _fields(found: Record) -> Iterator[tuple[str, int]]:
    yield from (("TOTALSIZE", 4), ("MAGICCODE", 4), ("BODYCRC", 4), ("QUEUEID", 4), ("FLAG", 4))
    yield from (("QUEUEOFFSET", 8), ("PHYSICALOFFSET", 8), ("SYSFLAG", 4), ("BORNTIMESTAMP", 8))
    yield "BORNHOST", 20 if found.sys_flag & SysFlag.BORN_HOST_V6 else 8
    yield "STORETIMESTAMP", 8
    yield "STOREHOST", 20 if found.sys_flag & SysFlag.STORE_HOST_V6 else 8
    yield from (("RECONSUMETIMES", 4), ("PREPAREDTRANSACTIONOFFSET", 8), ("BODYLENGTH", 4))
    yield from (("BODY", len(found.body)), ("TOPICLENGTH", found.version))
    yield from (("TOPIC", len(found.raw_topic)), ("PROPERTIESLENGTH", 2))


def _holder(view: memoryview, at: int, base: int) -> Record | None:
    """The whole record that contains a byte."""
    position, end = 0, len(view)
    search = RecordSearch(view, base, True)
    while 0 <= (position := search.find(position, end, at + 1)) <= at:
        size = search.check(position, end)[1]
        if position + size > at:
            return record.decode(view, position, end, physical_offset=base + position)
        position += size
    return None
