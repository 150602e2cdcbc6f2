"""Predicts the next start of a real broker: where its recovery begins, which records it accepts,
and where its log ends.

Source: CommitLog.recoverNormally, recoverAbnormally and checkMessageAndReturnSize of 4.9.7 and
5.4.0; tests/compat/test_damage.py compares the predictions with both.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from mqstore.storage._kernel import Defect, check_run
from mqstore.storage.layout import (
    BODY_CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_FIXED_SIZE,
    RECORD_IPV6_EXTRA_SIZE,
    RECORD_V2_EXTRA_SIZE,
    StoreFormat,
    SysFlag,
)
from mqstore.storage.recovery.view import Segment, StoreView
from mqstore.storage.tables.checkpoint import CLOCK_TOLERANCE_MS
from mqstore.storage.verify.finding import CUTS, Kind, effect

_CLEAN_SEGMENTS: Final = 3
"""Number of last segments that 4.9 checks after a clean close."""
_SEGMENTS_MAX: Final = 10
"""Maximum number of segments that 5.x goes back (commitLogRecoverMaxNum)."""
_HEAP_MIN: Final = 512 << 20
"""Assumed minimum heap of a broker in bytes."""
_HEAD: Final = struct.Struct(">iI")
_CRC: Final = struct.Struct(">i")
_CRC_POSITION: Final = 8
_SYS_FLAG_POSITION: Final = 36
_BODY_LENGTH_POSITION: Final = 84
"""Position of the body length when both hosts are IPv4."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}|[0-9]{19,20}")
_BEYOND: Final = (Kind.ENTRY_BEYOND, Kind.INDEX_BEYOND)
_V6: Final = (SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6)


@dataclass(frozen=True, slots=True)
class Broker:
    """A real broker started on the store as it is."""

    crashed: bool
    """Whether ``abort`` exists, so that it recovers as after a crash."""
    start: int = 0
    """Physical offset from which its recovery reads the log."""
    end: int = 0
    """The end of its log."""
    allocates: int = 0
    """Bytes that 4.9 would allocate for the bytes at ``end`` before it checks them; 0 where they
    fit into any heap."""

    def predict(self, kind: Kind, physical_offset: int | None = None) -> str:
        """The broker's action on a finding of this kind at this offset of the log."""
        if physical_offset is None:
            return effect(kind, crashed=self.crashed)
        if self.allocates and physical_offset == self.end:
            return f"4.9 refuses to start: it allocates {self.allocates} bytes here"
        if kind is Kind.LOG_TAIL:
            return self._with_a_tail(physical_offset)
        if kind in _BEYOND and physical_offset < self.end:
            return "kept: it takes what stands there for a record"
        if kind.is_of_a_record and physical_offset >= self.end:
            return CUTS if physical_offset == self.end else self._loss_text
        return effect(kind, crashed=self.crashed)

    def _with_a_tail(self, physical_offset: int) -> str:
        if self.end > physical_offset:
            return f"takes what stands there for records, up to offset {self.end}"
        if self.end < physical_offset:
            return self._loss_text
        return effect(Kind.LOG_TAIL, crashed=self.crashed)

    @property
    def _loss_text(self) -> str:
        return f"lost with all that is behind offset {self.end}, where it cuts the log"


def foresee(view: StoreView, queues_end: int) -> Broker:
    """Predict the start; ``queues_end`` is the greatest end of a record that any ConsumeQueue
    names."""
    start = _start(view, queues_end)
    end, allocates = _end(view, start)
    return Broker(view.abort, start, end, allocates)


def refuses_file(
    store_format: StoreFormat, name: str, size: int, due: int, *, is_last: bool
) -> bool:
    """Whether a file in ``commitlog/`` or in the directory of a queue prevents the start: one whose
    length is not ``due``, or whose name is no number. 5.x removes a last one of no bytes."""
    if size == due:
        return _NUMBER.fullmatch(name) is None
    return not (store_format is StoreFormat.V5_X and size == 0 and is_last)


def _start(view: StoreView, queues_end: int) -> int:
    segments = view.segments.usable
    if not segments:
        return 0
    is_5 = view.store_format is StoreFormat.V5_X
    if not is_5 and not view.abort:
        return segments[-_CLEAN_SEGMENTS:][0].base
    covered = min(view.checkpoint.physic_ms, view.checkpoint.logics_ms) - CLOCK_TOLERANCE_MS
    looked_at = segments[-_SEGMENTS_MAX:] if is_5 else segments
    for segment in reversed(looked_at):
        stored = view.first_store_timestamp(segment)
        if stored is None or (is_5 and not _begins_whole(view, segment)):
            continue
        if stored <= covered if view.abort else segment.base <= queues_end:
            return segment.base
    return looked_at[0].base


def _begins_whole(view: StoreView, segment: Segment) -> bool:
    with view.map_segment(segment) as data:
        return record_size(data, 0, view.store_format) > 0


def _end(view: StoreView, start: int) -> tuple[int, int]:
    """The end of its walk, and the bytes that it allocates for what ends it."""
    end = start
    for segment in view.segments.usable:
        if segment.base < start:
            continue
        with view.map_segment(segment) as data:
            position = _walk(data, segment.base, view.store_format)
            end = segment.base + position
            left = len(data) - position
            total, magic = _HEAD.unpack_from(data, position) if left >= _HEAD.size else (0, 0)
        if magic != MAGIC_BLANK:
            greedy = view.store_format is StoreFormat.V4_9 and magic == MAGIC_V1
            return end, total if greedy and total > _HEAP_MIN else 0
    return end, 0


def _walk(data: memoryview, base: int, store_format: StoreFormat) -> int:
    """The position in a segment up to which it accepts records."""
    position = 0
    while True:
        defect, position, _, _ = check_run(
            data, position, len(data), base, verify_body=True, max_records=len(data)
        )
        size = (
            0
            if defect in (Defect.NONE, Defect.BLANK)
            else record_size(data, position, store_format)
        )
        if size <= 0:
            return position
        position += size


def record_size(data: memoryview, position: int, store_format: StoreFormat) -> int:
    """Bytes of a record that a broker accepts as whole; 0 where it accepts none.

    It checks only the lengths and the body's checksum.
    """
    try:
        total, magic = _HEAD.unpack_from(data, position)
        size = _stated_size(data, position, magic)
    except (struct.error, IndexError):
        return 0
    known = (MAGIC_V1, MAGIC_V2) if store_format is StoreFormat.V5_X else (MAGIC_V1,)
    return total if magic in known and size == total <= len(data) - position else 0


def _stated_size(data: memoryview, position: int, magic: int) -> int:
    """The sum of the parts of a record; 0 when its body does not match its checksum."""
    is_v2 = magic == MAGIC_V2
    (sys_flag,) = _CRC.unpack_from(data, position + _SYS_FLAG_POSITION)
    hosts = RECORD_IPV6_EXTRA_SIZE * sum(bool(sys_flag & flag) for flag in _V6)
    at = position + _BODY_LENGTH_POSITION + hosts
    body_length: int = max(0, _CRC.unpack_from(data, at)[0])
    at += 4
    (crc,) = _CRC.unpack_from(data, position + _CRC_POSITION)
    if body_length and zlib.crc32(data[at : at + body_length]) & BODY_CRC_MASK != crc:
        return 0
    at += body_length
    topic_length: int = struct.unpack_from(">h" if is_v2 else ">b", data, at)[0]
    if topic_length < 0:
        return 0
    at += topic_length + 1 + is_v2
    properties_length: int = max(0, struct.unpack_from(">h", data, at)[0])
    variable = body_length + topic_length + properties_length
    return RECORD_FIXED_SIZE + is_v2 * RECORD_V2_EXTRA_SIZE + hosts + variable
