"""Plans the replacement of each unreadable stretch from the known facts of its records.

Queue entries are the best evidence: each names its record's offset, size, queue and queue offset.
Otherwise the record itself is trusted when its lengths add up, it states its own offset, and its
queue offset is possible.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mqstore.storage.layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_FIXED_SIZE,
    RECORD_V2_EXTRA_SIZE,
    TOPIC_LENGTH_MAX_V1,
    StoreFormat,
    SysFlag,
)
from mqstore.storage.recovery.report import CloseSegment, PlaceTombstone, Repair
from mqstore.storage.recovery.tombstones import (
    SIZE_MIN,
    EntryTarget,
    Parts,
    Piece,
    QueuePlace,
    can_close,
    cut_in_pieces,
    read_parts,
)
from mqstore.storage.recovery.view import QueueTable, Segment
from mqstore.storage.topic_names import is_lmq, is_safe_path

_MAGIC: Final = struct.Struct(">I")
_MAGIC_POSITION: Final = 4
Believe = Callable[[QueuePlace, int, bool], bool]
"""Whether a record at a physical offset may have this queue offset; the flag: a queue entry states
it."""


class _Identity(NamedTuple):
    """The known facts of an unreadable record; ``header`` is None when only a queue entry names
    it."""

    place: QueuePlace | None
    header: Parts | None


_NOTHING_KNOWN = _Identity(None, None)


class RepairPlanner:
    """Plans repairs for one ``LogScan``, in the order of the log."""

    def __init__(self, queues: QueueTable, store_format: StoreFormat, believe: Believe) -> None:
        self._queues = queues
        self._format = store_format
        self._believe = believe

    def of(
        self,
        segment: Segment,
        view: memoryview,
        stretch: tuple[int, int],
        *,
        why: str,
        store_timestamp_ms: int,
    ) -> Iterator[Repair]:
        """Yield the repairs of a stretch of physical offsets in one segment.

        A stretch shorter than any record gets none: a broker stops there.
        """
        named, is_last = self._named_within(*stretch), stretch[1] == segment.end
        for piece in cut_in_pieces(*stretch, named, is_last=is_last):
            length = piece.stop - piece.start
            if piece.stop == segment.end and can_close(piece):
                yield CloseSegment(offset=piece.start, length=length, defect=why)
            elif length >= SIZE_MIN:
                data = view[piece.start - segment.base : piece.stop - segment.base]
                yield _tombstone(piece, self._identify(piece, data), why, store_timestamp_ms)

    def _named_within(self, start: int, stop: int) -> list[EntryTarget]:
        return sorted(
            EntryTarget(named.offset, named.size, QueuePlace(*key, named.number))
            for key, named in self._queues.named_within(start, stop)
        )

    def _identify(self, piece: Piece, data: memoryview) -> _Identity:
        header = read_parts(data)
        if header is not None and not self._fits(header.topic, len(data)):
            header = None
        own = None if header is None else header.place
        known = [place for place in piece.places if self._fits(place.topic, len(data))]
        if known:
            place = own if own in known else min(known, key=_is_light)
            assert place is not None
            self._believe(place, piece.start, True)
            return _Identity(place, header if own == place else None)
        if header is None or header.physical_offset != piece.start or not _has_magic(data):
            return _NOTHING_KNOWN
        if own is not None and not self._believe(own, piece.start, False):
            return _NOTHING_KNOWN
        return _Identity(own, header)

    def _fits(self, topic: bytes, size: int) -> bool:
        """Whether a record of ``size`` bytes can name the topic, in this store's format."""
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return False
        if len(topic) > TOPIC_LENGTH_MAX_V1 and not self._format.writes_v2_records:
            return False
        room = size - RECORD_FIXED_SIZE - RECORD_V2_EXTRA_SIZE
        return is_safe_path(name) and len(topic) <= room


def _has_magic(data: memoryview) -> bool:
    """Whether the fields before FLAG, QUEUEID among them, exist: a power cut may leave the sector
    after theirs and not their own."""
    magic: int = _MAGIC.unpack_from(data, _MAGIC_POSITION)[0]
    return magic in (MAGIC_V1, MAGIC_V2)


def _tombstone(piece: Piece, found: _Identity, why: str, store_timestamp_ms: int) -> PlaceTombstone:
    place, header = found
    tombstone = PlaceTombstone(
        offset=piece.start,
        length=piece.stop - piece.start,
        defect=why,
        topic=None,
        sys_flag=int(SysFlag.TRANSACTION_ROLLBACK),
        store_timestamp_ms=store_timestamp_ms,
    )
    if header is not None:
        known = {
            "topic": header.topic.decode(),
            "queue_id": header.queue_id,
            "queue_offset": header.queue_offset,
            "sys_flag": header.sys_flag,
            "keeps_header": True,
        }
    elif place is not None:
        known = {
            "topic": place.topic.decode(),
            "queue_id": place.queue_id,
            "queue_offset": place.queue_offset,
            "sys_flag": 0,
        }
    else:
        known = {}
    return tombstone.model_copy(update=known)


def _is_light(place: QueuePlace) -> bool:
    return is_lmq(place.topic.decode())
